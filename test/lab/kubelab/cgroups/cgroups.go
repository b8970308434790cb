// Package cgroups creates control groups for a process below the groups of this process. It
// supports version 1 (one hierarchy per controller, also on hybrid machines) and version 2
// (one hierarchy).
package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// root is the directory in which the hierarchies are mounted.
const root = "/sys/fs/cgroup"

const procsFile = "cgroup.procs"

// Hierarchy is one tree of groups. In version 2, Name and controllers are empty.
type Hierarchy struct {
	Name        string // of its folder below /sys/fs/cgroup
	controllers string // in the form of mount(8)
	own         string // the folder of this process's group
}

// Hierarchies returns the cgroup hierarchies of this machine.
func Hierarchies() ([]Hierarchy, error) {
	file, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	defer func() { _ = file.Close() }()
	var found []Hierarchy
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, rest, _ := strings.Cut(lines.Text(), ":")
		controllers, own, _ := strings.Cut(rest, ":")
		if h, ok := version1(controllers, own); ok {
			found = append(found, h)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return version2()
}

// version1 returns the hierarchy of controllers, if it is mounted.
func version1(controllers, own string) (Hierarchy, bool) {
	name := strings.TrimPrefix(controllers, "name=")
	dir := filepath.Join(root, name)
	if _, err := os.Stat(filepath.Join(dir, procsFile)); name == "" || err != nil {
		return Hierarchy{}, false
	}
	if name != controllers {
		controllers = "none," + controllers
	}
	return Hierarchy{Name: name, controllers: controllers, own: filepath.Join(dir, own)}, true
}

// version2 returns the single hierarchy. Groups are created at its root: a group with processes, like the group of this process,
// cannot have child groups with controllers.
func version2() ([]Hierarchy, error) {
	if err := delegate(root); err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	return []Hierarchy{{own: root}}, nil
}

// delegate enables the controllers of dir for its child groups.
func delegate(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	all := ""
	for _, c := range strings.Fields(string(controllers)) {
		all += "+" + c + " "
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(all), 0)
}

// Group returns the directory of a group.
func (h Hierarchy) Group(name string) string { return filepath.Join(h.own, name) }

// Enter creates a group and moves a process into it.
func (h Hierarchy) Enter(name string, pid int) error {
	group := h.Group(name)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	if h.Name == "cpuset" { // a new group has no processors and no memory
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(group, file); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(group, procsFile), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("enter control group: %w", err)
	}
	return nil
}

func inherit(group, file string) error {
	value, err := os.ReadFile(filepath.Join(filepath.Dir(group), file))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(group, file), value, 0)
}

// Mount mounts the hierarchy below dir, for a process in a cgroup namespace.
func (h Hierarchy) Mount(dir string) error {
	target := filepath.Join(dir, h.Name)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mount control groups: %w", err)
	}
	kind := "cgroup"
	if h.Name == "" {
		kind = "cgroup2"
	}
	if err := syscall.Mount("cgroup", target, kind, 0, h.controllers); err != nil {
		return fmt.Errorf("mount control groups %s: %w", target, err)
	}
	if h.Name == "" {
		return leaveRoot(target)
	}
	return nil
}

// leaveRoot moves this process out of the root of its namespace, so that child groups can have controllers.
func leaveRoot(dir string) error {
	leaf := filepath.Join(dir, "init")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(leaf, procsFile), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("enter control group: %w", err)
	}
	return delegate(dir)
}

const (
	removeTimeout  = 20 * time.Second
	removeInterval = 20 * time.Millisecond
)

// Remove removes the groups with that name and all groups below them. Their processes have ended, or are about to end.
func Remove(name string) error {
	hierarchies, err := Hierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(removeTimeout)
	tick := time.NewTicker(removeInterval)
	defer tick.Stop()
	for _, h := range hierarchies {
		for err := removeTree(h.Group(name)); err != nil; err = removeTree(h.Group(name)) {
			if time.Now().After(deadline) {
				return fmt.Errorf("remove control group: %w", err)
			}
			<-tick.C
		}
	}
	return nil
}

// removeTree removes a group after its child groups.
func removeTree(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := removeTree(filepath.Join(group, e.Name())); err != nil {
			return err
		}
	}
	if err := syscall.Rmdir(group); err != nil && !errors.Is(err, syscall.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: group, Err: err}
	}
	return nil
}
