/* A program that never touches CUDA. Prints how many threads and sockets it has and which GPU libraries are
 * mapped, as a data loader or a launcher would be. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int CountEntries(const char* folder) {
  int entries = 0;
  DIR* dir = opendir(folder);
  if (dir == NULL) return -1;
  for (struct dirent* entry = readdir(dir); entry != NULL; entry = readdir(dir))
    entries += entry->d_name[0] != '.';
  closedir(dir);
  return entries;
}

static int CountSockets(void) {
  int sockets = 0;
  DIR* dir = opendir("/proc/self/fd");
  if (dir == NULL) return -1;
  for (struct dirent* entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
    char path[512];
    char target[256];
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    sockets += strncmp(target, "socket:", 7) == 0;
  }
  closedir(dir);
  return sockets;
}

static int Mapped(const char* library) {
  char line[1024];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return -1;
  while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, library) != NULL;
  fclose(maps);
  return found;
}

int main(void) {
  printf("threads %d\nsockets %d\nlibgpuprobe %d\nlibcuda %d\nlibcupti %d\n", CountEntries("/proc/self/task"),
         CountSockets(), Mapped("libgpuprobe"), Mapped("libcuda"), Mapped("libcupti"));
  return 0;
}
