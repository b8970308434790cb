// Package footprint gives back to the system what memory the program needed for a
// while and does not any more.
package footprint

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram gives back the pages of the program that are mapped and may not be
// needed again: the start of one that has all commands in it has touched most. What is
// needed again is read from the page cache. It changes nothing but memory, and may be
// called at any time.
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
