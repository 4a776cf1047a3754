/* Prints what a child inherits: environment, descriptors, signals, working folder, limits, scheduling and
 * brothers. Linked statically, so that a preloaded library changes nothing here but what the parent handed
 * over. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int ByText(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

static void PrintEnvironment(void) {
  size_t count = 0;
  while (environ[count] != NULL) ++count;
  qsort(environ, count, sizeof environ[0], ByText);
  for (size_t i = 0; i < count; ++i) puts(environ[i]);
}

/* Kinds, not numbers of inodes: those differ from run to run. */
static void PrintDescriptors(void) {
  for (int fd = 0; fd < 1024; ++fd) {
    char path[64];
    char target[4096];
    struct stat status;
    if (fstat(fd, &status) != 0) continue;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    char* inode = strchr(target, '[');
    if (inode != NULL) *inode = '\0';
    const int regular = S_ISREG(status.st_mode);
    printf("descriptor %d %s flags %o\n", fd, regular ? "file" : target, fcntl(fd, F_GETFL));
  }
}

static void PrintSignals(void) {
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, NULL, &blocked);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN) printf("ignores signal %d\n", number);
    if (sigismember(&blocked, number) == 1) printf("blocks signal %d\n", number);
  }
}

static void PrintLimits(void) {
  for (int kind = 0; kind < RLIM_NLIMITS; ++kind) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)kind, &limit) == 0)
      printf("limit %d %lld %lld\n", kind, (long long)limit.rlim_cur, (long long)limit.rlim_max);
  }
}

static void PrintScheduling(void) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  sched_getaffinity(0, sizeof processors, &processors);
  printf("policy %d, nice %d, %d processors\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
         CPU_COUNT(&processors));
}

/* The 38th field of /proc/PID/stat; the text begins at the end of the second. */
static int ExitSignal(const char* after_name) {
  const char* field = after_name;
  for (int number = 2; number < 38 && field != NULL; ++number) field = strchr(field + 1, ' ');
  return field == NULL ? 0 : atoi(field);
}

/* How many children the parent has that it can wait for (they signal their end by SIGCHLD): another one would
 * be one that it did not ask for. */
static void PrintBrothers(void) {
  int brothers = 0;
  DIR* processes = opendir("/proc");
  for (struct dirent* entry = processes == NULL ? NULL : readdir(processes); entry != NULL;
       entry = readdir(processes)) {
    char path[300];
    char line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
    FILE* file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "r") : NULL;
    if (file == NULL) continue;
    const char* after_name = fgets(line, sizeof line, file) == NULL ? NULL : strrchr(line, ')');
    int parent = 0;
    if (after_name != NULL && sscanf(after_name, ") %*c %d", &parent) == 1 && parent == getppid())
      brothers += ExitSignal(after_name) == SIGCHLD;
    fclose(file);
  }
  if (processes != NULL) closedir(processes);
  printf("children of the parent: %d\n", brothers);
}

int main(void) {
  char folder[4096];
  int subreaper = 0;
  PrintEnvironment();
  PrintDescriptors();
  PrintSignals();
  const mode_t mask = umask(0);
  umask(mask);
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  printf("folder %s, umask %o, subreaper %d, dumpable %d\n",
         getcwd(folder, sizeof folder) == NULL ? "none" : folder, (unsigned)mask, subreaper,
         prctl(PR_GET_DUMPABLE));
  PrintLimits();
  PrintScheduling();
  PrintBrothers();
  return 0;
}
