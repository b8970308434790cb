package ovsdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// diskSize is more than a database of a test needs.
const diskSize = 32 << 20

// mount gives the server's folder a file system of its own, in memory. It needs root.
func (p *Process) mount() error {
	if err := syscall.Mount("tmpfs", p.dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize)); err != nil {
		return fmt.Errorf("mount a disk for ovsdb-server: %w: run it as root", err)
	}
	p.disk = true
	return nil
}

func (p *Process) unmount() error {
	if !p.disk {
		return nil
	}
	p.disk = false
	if err := syscall.Unmount(p.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the disk of ovsdb-server: %w", err)
	}
	return nil
}

func (p *Process) ballast() string { return filepath.Join(p.dir, "ballast") }

// fill creates a file that uses all free space of the disk.
func (p *Process) fill() error {
	if !p.disk {
		return errors.New("fill the disk of ovsdb-server: it has no disk of its own")
	}
	f, err := os.Create(p.ballast())
	if err != nil {
		return fmt.Errorf("fill the disk of ovsdb-server: %w", err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk of ovsdb-server: %w", err)
	}
	return nil
}

// free ends fill.
func (p *Process) free() error {
	if err := os.Remove(p.ballast()); err != nil {
		return fmt.Errorf("free the disk of ovsdb-server: %w", err)
	}
	return nil
}
