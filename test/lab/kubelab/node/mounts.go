package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab/cgroups"
)

// kept are directories of the node that are not in the copy-on-write view, because containerd and kubelet mount file
// systems that such a view does not support. They are in the node's own directory of the machine.
var kept = map[string]string{
	"containerd": "/var/lib/containerd",
	"kubelet":    "/var/lib/kubelet",
	"log":        "/var/log",
	"etc":        configDir,
	"cni/bin":    "/opt/cni/bin",
	"cni/net.d":  "/etc/cni/net.d",
}

// settings of the machine that kubelet would change.
var settings = []string{
	"kernel/keys/root_maxbytes", "kernel/keys/root_maxkeys", "kernel/panic", "kernel/panic_on_oops",
	"vm/overcommit_memory", "vm/panic_on_oom",
}

const (
	configDir = "/etc/kubelab"
	imageDir  = configDir + "/images"
	toolsFile = "/usr/local/bin/hyperkube"
	// socketDir is the directory of the node's Open vSwitch.
	socketDir = "/run/openvswitch"
)

// step is a step of creating the node's root.
type step struct {
	what string
	do   func() error
}

func bind(from, to string) func() error {
	return func() error { return syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, "") }
}

// mountRoot mounts the node's root. All mounts end with the namespace.
func (n *node) mountRoot() error {
	root := filepath.Join(n.dir, "root")
	in := func(path string) string { return filepath.Join(root, path) }
	overlay := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(n.dir, "upper"), filepath.Join(n.dir, "work"))
	for _, s := range []step{
		{"keep mounts to this namespace", func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }},
		{"mount root", func() error { return syscall.Mount("overlay", root, "overlay", 0, overlay) }},
		{"mount dev", bind("/dev", in("dev"))},
		{"mount proc", func() error { return syscall.Mount("proc", in("proc"), "proc", 0, "") }},
		{"mount sys", func() error { return syscall.Mount("sysfs", in("sys"), "sysfs", 0, "") }},
		{"mount control groups", func() error { return mountGroups(in("sys/fs/cgroup")) }},
		{"mount run", func() error { return syscall.Mount("tmpfs", in("run"), "tmpfs", 0, "mode=755") }},
		{"mount what is kept", func() error { return n.mountKept(in) }},
		{"mount Open vSwitch's sockets", func() error { return mountAt(n.ovs, in(socketDir)) }},
		{"mount the tools", func() error { return mountFile(n.hyperkube, in(toolsFile)) }},
		{"enter root", func() error { return pivot(root) }},
		{"let containers see mounts", func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "") }},
		{"keep the machine's settings", hideSettings},
	} {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func mountGroups(dir string) error {
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	if hierarchies[0].Name != "" { // version 1 has a folder for each hierarchy
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for _, h := range hierarchies {
		if err := h.Mount(dir); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) mountKept(in func(string) string) error {
	for name, path := range kept {
		if err := mountAt(filepath.Join(n.dir, name), in(path)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// mountAt mounts a directory at a path, which it creates.
func mountAt(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return bind(from, to)()
}

func mountFile(from, to string) error {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_RDONLY, 0o755)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), bind(from, to)())
}

// pivot changes the root to a directory, and unmounts the old one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.PivotRoot(".", "."); err != nil { // the old one is above the new one
		return err
	}
	if err := syscall.Unmount(".", syscall.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// hideSettings covers settings of the machine that do not belong to a namespace.
func hideSettings() error {
	const dir = "/run/settings"
	for _, name := range settings {
		path := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		instead := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(instead), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(instead, value, 0o644); err != nil {
			return err
		}
		if err := bind(instead, path)(); err != nil {
			return err
		}
	}
	return nil
}
