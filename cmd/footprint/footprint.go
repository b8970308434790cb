// Package footprint returns memory to the kernel that the program no longer needs.
package footprint

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram returns the mapped pages of the program itself. Most of them were needed only
// at the start, because the program has all commands in it. Pages that are needed again are
// read from the page cache. It may be called at any time.
func ReleaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("find the program's pages: %w", err)
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// from-to permissions offset device inode path
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || strings.Join(fields[5:], " ") != program || strings.Contains(fields[1], "w") {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return fmt.Errorf("read where the program is mapped: %w", err)
		}
		if _, _, code := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); code != 0 {
			return fmt.Errorf("give pages of the program back: %w", code)
		}
	}
	return nil
}
