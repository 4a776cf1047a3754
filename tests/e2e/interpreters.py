"""Interpreters that load a shared object, start CUDA in it, and then do what is hard on a process: what test_interpreters.py compares.

Each script loads $MODULE (programs/cuda_module.cu) and calls it, which launches ten kernels; `cuda` says how many times all of its
processes do, or None where one ends by exec or a signal, or as another user. Then it changes
the environment, has children, closes descriptors, handles signals, and ends with a status of its own. `volatile` as in ordinary_programs.py.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Interpreter:
    program: str
    file: str
    script: str
    command: str
    cuda: int | None = 2
    volatile: str = ""


PERL = r"""
use strict; use POSIX; use DynaLoader;
$ENV{BEFORE} = "1";
my $library = DynaLoader::dl_load_file($ENV{MODULE}, 0) or die DynaLoader::dl_error();
DynaLoader::dl_install_xsub("main::start_cuda", DynaLoader::dl_find_symbol($library, "start_cuda_perl"));
start_cuda();
$| = 1;
"""

PYTHON = r"""
import atexit, ctypes, os, signal, subprocess, sys, threading
module = ctypes.CDLL(os.environ["MODULE"])
def view():
    sys.stdout.flush()
    return subprocess.run(["child_view"]).returncode
print(module.start_cuda())
"""

RUBY = r"""
require 'fiddle'
$stdout.sync = true
start = Fiddle::Function.new(Fiddle.dlopen(ENV['MODULE'])['start_cuda'], [], Fiddle::TYPE_INT)
p start.call
"""

JAVA = r"""
import java.util.*;
public class Main {
  static native int startCuda();
  public static void main(String[] arguments) throws Exception {
    System.load(System.getenv("MODULE"));
    System.out.println(startCuda());
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
    ProcessBuilder view = new ProcessBuilder("child_view").inheritIO();
    view.environment().put("A", "1");
    view.environment().remove("HOME");
    System.out.println(view.start().waitFor());
    Thread[] threads = new Thread[4];
    for (int i = 0; i < 4; ++i) (threads[i] = new Thread(() -> Locale.setDefault(Locale.GERMANY))).start();
    for (Thread thread : threads) thread.join();
    System.out.println(String.format("%,d", 1234567) + new TreeMap<>(System.getenv()).containsKey("HOME"));
    System.out.println(startCuda());
    System.exit(5);
  }
}
"""

INTERPRETERS = {
    "perl that changes its environment": Interpreter("perl", "script", PERL + r"""
for my $i (1 .. 50) { $ENV{"NEW$i"} = "value$i" x 10; }
print `/bin/sh -c 'echo \$NEW50'`;
for my $i (1 .. 50) { delete $ENV{"NEW$i"}; }
{ local $ENV{HOME} = "/elsewhere"; system("child_view"); }
for my $name (keys %ENV) { next if $name =~ /^(PATH|LD_|GPU|E2E)/; $ENV{$name} = "x" x 100; delete $ENV{$name}; }
system("child_view");
start_cuda();
%ENV = (PATH => $ENV{PATH});
exec("child_view");
""", "perl script", cuda=None),
    "perl with children and signals": Interpreter("perl", "script", PERL + r"""
my %status;
for (1 .. 5) { if (!fork) { POSIX::_exit($_) } }
while ((my $child = wait) > 0) { $status{$? >> 8}++ }
print join(",", sort keys %status), " $!\n";
print "ended ", system("sh", "-c", "exit 3") >> 8, "\n";
open my $pipe, "-|", "child_view" or die; print while <$pipe>; close $pipe;
chdir "tree"; umask 027; setlocale(LC_ALL, "C");
$SIG{ALRM} = sub { print "alarm\n" }; kill ALRM => $$; $SIG{CHLD} = "IGNORE"; system("true"); print "$?\n";
$0 = "renamed"; open my $line, "/proc/self/cmdline"; print <$line>, "\n";
POSIX::close($_) for 3 .. 200;
system("child_view");
start_cuda();
END { print "end\n"; $? = 6 }
""", "perl script"),
    "python that changes its environment": Interpreter("/usr/bin/python3", "script", PYTHON + r"""
for i in range(80):
    os.environ[f"NEW{i}"] = "x" * i
    os.putenv("NEW", str(i))
os.unsetenv("NEW")
view()
libc = ctypes.CDLL(None)
libc.setenv(b"FROM_C", b"1", 1)
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b"FROM_C"), libc.getenv(b"NEW79"))
for name in list(os.environ):
    if name != "PATH" and not name.startswith(("GPUPROBE", "LD_")):
        del os.environ[name]
os.system("child_view")
libc.clearenv()
libc.setenv(b"ONLY", b"1", 1)
os.system("/usr/bin/env")
print(module.start_cuda())
sys.exit(7)
""", "python3 script"),
    "python that edits its environment in place": Interpreter("/usr/bin/python3", "script", PYTHON + r"""
libc = ctypes.CDLL(None)
libc.realloc.restype = ctypes.c_void_p
libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.putenv.argtypes = [ctypes.c_void_p]
kept = ctypes.create_string_buffer(b"EDITED=before")
libc.putenv(ctypes.addressof(kept))
kept.value = b"EDITED=after"
os.system("echo $EDITED")
array = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
count = 0
while array[count] is not None:
    if array[count].startswith(b"HOME="):
        array[count] = b"HOME=/edited"
    count += 1
os.system("child_view")
print(module.start_cuda())
""", "python3 script"),
    "python with children, descriptors and signals": Interpreter("/usr/bin/python3", "script", PYTHON + r"""
atexit.register(print, "at exit")
print([process.wait() for process in [subprocess.Popen(["sh", "-c", f"exit {i}"], close_fds=i % 2 == 0) for i in range(8)]])
child = os.fork()
if child == 0:
    os._exit(9)
print(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError as error:
    print(error)
os.closerange(3, 500)
view()
os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], {})
print(os.wait()[1])
seen = []
for number in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGALRM, signal.SIGPROF):
    signal.signal(number, lambda n, f: seen.append(n))
    os.kill(os.getpid(), number)
print(sorted(seen), signal.pthread_sigmask(signal.SIG_BLOCK, []))
threads = [threading.Thread(target=module.start_cuda) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
os.chdir("tree")
view()
os.kill(os.getpid(), signal.SIGTERM)
""", "python3 script", cuda=None),
    "python with multiprocessing": Interpreter("/usr/bin/python3", "script", r"""
import ctypes, multiprocessing, os
def work(number):
    return number * number + ctypes.CDLL(os.environ["MODULE"]).start_cuda()
if __name__ == "__main__":
    pool = multiprocessing.get_context("spawn").Pool(1)
    print(pool.map(work, range(2)))
    pool.close()
    pool.join()
    print(work(3))
""", "cp script script.py; python3 -B script.py", cuda=3),
    "python under MPI": Interpreter("mpirun", "script", r"""
import ctypes, os
ctypes.CDLL(os.environ["MODULE"]).start_cuda()
os.environ["A"] = os.environ["OMPI_COMM_WORLD_RANK"]
raise SystemExit(os.system("exit $A") >> 8)
""", "mpirun --allow-run-as-root --oversubscribe -n 2 python3 -B script > out 2>&1; echo $?; rm out"),
    "ruby": Interpreter("ruby", "script", RUBY + r"""
100.times { |i| ENV["NEW#{i}"] = 'x' * i }
50.times { |i| ENV.delete("NEW#{i}") }
system('child_view')
p fork { exit!(4) }.class; Process.wait; p $?.exitstatus
begin; Process.wait; rescue SystemCallError => error; p error.class; end
puts `child_view`
trap(:USR1) { puts 'usr1' }; Process.kill(:USR1, $$); sleep 0.01
p 8.times.map { |i| Thread.new { i * i } }.map(&:value)
$0 = 'renamed'
Dir.chdir('tree') { system('child_view') }
keep = ENV['PATH']; ENV.clear; ENV['PATH'] = keep
puts `env`
p start.call
at_exit { puts 'at exit' }
exit 3
""", "ruby --disable-gems script"),
    "php": Interpreter("php", "script", r"""<?php
$module = FFI::cdef("int start_cuda(void);", getenv("MODULE"));
echo $module->start_cuda(), "\n";
for ($i = 0; $i < 60; $i++) putenv("NEW$i=" . str_repeat("x", $i));
passthru("child_view");
for ($i = 0; $i < 60; $i++) putenv("NEW$i");
putenv("HOME");
$process = proc_open(["sh", "-c", "cat; exit 5"], [["pipe", "r"], STDOUT], $pipes);
fwrite($pipes[0], "through\n"); fclose($pipes[0]); echo proc_close($process), "\n";
passthru("child_view");
setlocale(LC_ALL, "C"); chdir("tree");
register_shutdown_function(function() { echo "shutdown\n"; });
echo $module->start_cuda(), "\n";
exit(4);
""", "(php -n -d extension=ffi.so -d ffi.enable=1 script; echo $?) | cat"),
    "node": Interpreter("node", "script", r"""
const child = require('child_process');
const module_ = { exports: {} };
process.dlopen(module_, process.env.MODULE);
for (let i = 0; i < 60; ++i) process.env[`NEW${i}`] = 'x'.repeat(i);
child.spawnSync('child_view', { stdio: 'inherit' });
for (const name of Object.keys(process.env)) if (name.startsWith('NEW')) delete process.env[name];
delete process.env.HOME;
console.log(child.execSync('child_view').toString());
process.on('SIGUSR2', () => { console.log('usr2'); process.chdir('tree'); process.exitCode = 3; });
process.kill(process.pid, 'SIGUSR2');
setTimeout(() => console.log(process.cwd().endsWith('tree')), 100);
process.on('exit', () => console.log('exit'));
""", "node script", cuda=1),
    "java": Interpreter("javac", "Main.java", JAVA, "javac -XDuseUnsharedTable Main.java && java -Xmx64m -cp . Main; rm *.class"),
    "lua": Interpreter("lua5.4", "script", r"""
local start = package.loadlib(os.getenv("MODULE"), "start_cuda_lua")
start()
print(os.execute("child_view"))
print(io.popen("exit 3"):close())
print(os.setlocale("C"), os.getenv("HOME"))
start()
os.exit(4, true)
""", "lua5.4 script"),
    "tcl": Interpreter("tclsh", "script", r"""
load $env(MODULE) Cudamodule
for {set i 0} {$i < 60} {incr i} { set env(NEW$i) [string repeat x $i] }
puts [exec child_view]
for {set i 0} {$i < 60} {incr i} { unset env(NEW$i) }
unset env(HOME)
puts [exec child_view]
catch {exec sh -c {exit 3}} message; puts $message
set pipe [open |cat r+]; puts $pipe hello; flush $pipe; puts [gets $pipe]; close $pipe
cd tree
foreach name [array names env] { if {$name ne "PATH"} { unset env($name) } }
puts [lsort [exec env]]
exit 5
""", "tclsh script", cuda=1),
    "guile": Interpreter("guile", "script", r"""
(define start (dynamic-func "start_cuda" (dynamic-link (getenv "MODULE"))))
(use-modules (system foreign))
(display ((pointer->procedure int start '())))
(newline)
(for-each (lambda (i) (setenv (string-append "NEW" (number->string i)) "x")) (iota 60))
(unsetenv "HOME")
(force-output)
(system "child_view")
(environ (list (string-append "PATH=" (getenv "PATH"))))
(system "env")
(display ((pointer->procedure int start '())))
(newline)
(exit 4)
""", "guile --no-auto-compile -s script"),
    "bash": Interpreter("bash", "script", r"""
enable -f $MODULE start_cuda
start_cuda
for i in {1..60}; do export NEW$i=x$i; done
child_view
for i in {1..60}; do unset NEW$i; done
unset HOME; export PATH=$PATH:/none
child_view
# In a child, which has one thread: CUDA's threads may get a SIGCHLD while the main one waits, and bash is not made for that.
(coproc cat; echo hello >&${COPROC[1]}; read line <&${COPROC[0]}; echo $line; exec {COPROC[1]}>&-; wait $COPROC_PID; echo $?)
((exit 3) & wait $!; echo $?)
trap 'echo usr1' USR1; kill -USR1 $$
diff <(echo a) <(echo b)
for i in {3..250}; do exec {i}>&-; done
cd tree; child_view
start_cuda
wait; jobs
trap 'echo exit' EXIT
exit 9
""", "bash script 2>&1"),
    "bash that replaces itself": Interpreter("bash", "script", r"""
enable -f $MODULE start_cuda
start_cuda
export A=1
exec child_view
""", "bash script", cuda=None),
    "zsh": Interpreter("zsh", "script", r"""
module_path=($PWD $module_path)
ln -s $MODULE cuda_module.so
zmodload cuda_module
for i in {1..60}; do export NEW$i=x$i; done
for i in {1..60}; do unset NEW$i; done
child_view
unset HOME
((exit 3) & wait $!; print $?)
env -i A=1 child_view
cd tree; child_view
TRAPUSR1() { print usr1 }; kill -USR1 $$
rm ../cuda_module.so
return 4
""", "zsh -f script", cuda=1),
    "gdb": Interpreter("gdb", "script", r"""
import ctypes, os
import gdb
# Before CUDA's threads are there: they block no signal, and gdb waits for a SIGCHLD that is delivered to its main thread.
gdb.execute("file /bin/true")
gdb.execute("run")
print(gdb.parse_and_eval("$_exitcode"))
print(ctypes.CDLL(os.environ["MODULE"]).start_cuda())
os.environ["A"] = "1"
gdb.execute("set environment B 2")
gdb.execute("unset environment HOME")
gdb.execute("shell child_view")
""", "cp script script.py; gdb -nx -batch -ex 'set startup-with-shell off' -x script.py 2>&1", cuda=1,
                       volatile=r"process \d+|\[Thread debugging[^\n]*|Using host libthread_db[^\n]*|\[?(New )?LWP \d+[^\n]*|children of the parent: \d+|\(No debugging symbols[^\n]*|0x[0-9a-f]+"),
    "vim": Interpreter("vim", "script", r"""
call libcallnr($MODULE, 'start_cuda_long', 0)
for i in range(60)
  execute 'let $NEW' . i . " = 'x'"
endfor
unlet $NEW7
!child_view > seen
let $HOME = '/elsewhere'
call system('child_view > seen2')
let job = job_start(['sh', '-c', 'exit 3'])
while job_status(job) == 'run' | sleep 5m | endwhile
call writefile([job_info(job).exitval, libcallnr($MODULE, 'start_cuda_long', 0)], 'status')
%s/pear/PEAR/
wq! out
""", "vim -u NONE -es -S script words; echo $?; cat seen seen2 status", volatile=r"VIM\w*=[^\n]*|children of the parent: \d+"),
    "sqlite": Interpreter("sqlite3", "script", r"""
.load cuda_module sqlite3_cudamodule_init
create table t(x);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000) insert into t select x from c;
select sum(x) from t;
.shell child_view
selec;
""", "ln -s $MODULE cuda_module.so; LD_LIBRARY_PATH=.:$LD_LIBRARY_PATH sqlite3 a.db < script; echo $?; rm cuda_module.so", cuda=1),
    "make": Interpreter("make", "script", r"""
load $(MODULE)(start_cuda_make)
export A = 1
unexport HOME
X := $(shell child_view > seen; echo shell)
all: one two
	@echo $(X); child_view; false
one two:
	@exit 0
""", "make -sf script; echo $?; cat seen", cuda=1),
    "gcc": Interpreter("gcc", "script", "", "gcc -O1 -fplugin=$MODULE -c twice.c && nm twice.o; rm twice.o", cuda=1),
    "ld": Interpreter("ld", "script", "", "gcc -c twice.c; ld -plugin $MODULE -r twice.o -o all.o && nm all.o", cuda=1),
    "psql": Interpreter("psql", "script", r"""
load '%MODULE%';
select sum(x) from generate_series(1, 1000) x;
select 1/0;
""", "d=$(mktemp -d /tmp/gpepg-XXXXXX); chown nobody $d; p=$(ls -d /usr/lib/postgresql/*/bin | tail -1); n='runuser -u nobody --'; cp $MODULE $d/m.so; $n env LC_ALL=C $p/initdb -D $d/d --no-sync > log 2>&1 || cat log; "
                         "sed s,%MODULE%,$d/m.so, script | tr '\\n' ' ' | sed 's/; /;\\n/g' | $n $p/postgres --single -D $d/d postgres 2>&1 | grep -v -e LOG -e ^DEBUG; rm -rf $d log", cuda=None, volatile=r"\d{4}-\d\d-\d\d [^\n]*\[\d+\]|/tmp/gpepg-\w+"),
}
