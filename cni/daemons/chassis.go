package daemons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/coe-bridge/coe-bridge/cni/unixctl"
)

// ChassisName returns the name of the node in OVN, if ovn-controller has another source for it than the system-id of Open vSwitch. The name
// is empty if there is none. recorded has the names that ovn-controller has recorded in Open vSwitch, the last one at the end. They
// decide if the process is not visible, as from a container with its own processes. The name is not known if ovn-controller has
// recorded none and is not connected to its database: it records its name first. Releases before 23.03 record none, and have no other source.
func ChassisName(ctx context.Context, ovnRunDir string, recorded []string) (name string, known bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := unixctl.Dial(ctx, ovnRunDir, "ovn-controller")
	if err == nil {
		defer c.Close()
		if name, known := chassisOf(c.PID()); known {
			return name, true
		}
	}
	if len(recorded) > 0 {
		return recorded[len(recorded)-1], true
	}
	if err != nil {
		return "", false
	}
	status, err := c.Ask(ctx, "connection-status")
	return "", err == nil && status == "connected"
}

// chassisOf returns the name that a process of ovn-controller has from its option -n, or else from the first line of the file
// system-id-override, which it reads at its start.
func chassisOf(pid int) (name string, known bool) {
	process := filepath.Join("/proc", fmt.Sprint(pid))
	arguments := words(filepath.Join(process, "cmdline"))
	if len(arguments) == 0 || filepath.Base(arguments[0]) != "ovn-controller" {
		return "", false
	}
	for n, argument := range arguments {
		name, is := strings.CutPrefix(argument, "-n")
		switch {
		case is && name != "":
			return name, true
		case is && n+1 < len(arguments):
			return arguments[n+1], true
		}
	}
	dir := "/etc"
	for _, setting := range words(filepath.Join(process, "environ")) {
		if other, is := strings.CutPrefix(setting, "OVN_SYSCONFDIR="); is {
			dir = other
		}
	}
	path := filepath.Join(dir, "system-id-override")
	name, err := firstLine(filepath.Join(process, "root", path))
	if errors.Is(err, fs.ErrPermission) { // the unit of systemd has no right to look into other processes; it has the same files
		name, err = firstLine(path)
	}
	return name, err == nil || errors.Is(err, fs.ErrNotExist)
}

// maxName is the most bytes of the file that ovn-controller reads.
const maxName = 63

// firstLine returns the first line of a file. It does not wait for a writer of a pipe.
func firstLine(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxName))
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), err
}

// words returns the texts in a file of the kernel in which each ends with a zero byte.
func words(path string) (all []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for one := range bytes.SplitSeq(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		all = append(all, string(one))
	}
	return all
}
