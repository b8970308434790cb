package kubelab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab/cgroups"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// stateRoot has a directory for every lab of this machine, on a disk, because overlay mounts of containerd cannot be in an
// overlay.
const stateRoot = "/var/tmp/kubelab"

const (
	lockFile    = "lock"    // locked while the owner of the lab lives
	surviveFile = "survive" // exists if the lab outlives its owner
	nodesDir    = "nodes"   // has a folder for each node
)

// stateDir is the directory of a lab.
type stateDir struct {
	dir  string
	lock *os.File
}

func (s *stateDir) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// unlock releases the lab's lock. The lab then has no owner.
func (s *stateDir) unlock() error { return s.lock.Close() }

// createStateDir creates the directory of a lab, which must not exist.
func createStateDir(prefix string, survive bool) (*stateDir, error) {
	if err := os.MkdirAll(stateRoot, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of clusters: %w", err)
	}
	s := &stateDir{dir: filepath.Join(stateRoot, prefix)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("a cluster of this name exists in %s: remove it with Cleanup first", s.dir)
		}
		return nil, fmt.Errorf("make folder of cluster: %w", err)
	}
	if survive {
		if err := os.WriteFile(s.path(surviveFile), nil, 0o644); err != nil {
			return nil, fmt.Errorf("make folder of cluster: %w", err)
		}
	}
	var err error
	s.lock, err = lock(s.dir)
	return s, err
}

// lock holds the lock of a lab's directory until the file is closed or this process ends.
func lock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock folder of cluster: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return file, nil
}

// Exists reports whether a lab with that prefix exists, running or left over.
func Exists(prefix string) bool {
	_, err := os.Stat(filepath.Join(stateRoot, prefix))
	return err == nil
}

// LogFolders returns the directories of a lab's logs, for messages.
func LogFolders(prefix string) string {
	return fmt.Sprintf("/run/ovnhost/%s/logs, %s", prefix, filepath.Join(stateRoot, prefix, nodesDir, "*", "log"))
}

// Cleanup removes the lab with that prefix, which must not be in use: its processes, namespaces, control groups and files. It may
// be repeated after an error.
func Cleanup(prefix string) error {
	dir := filepath.Join(stateRoot, prefix)
	if err := odl.Cleanup(prefix); err != nil {
		return err
	}
	nodes, err := os.ReadDir(filepath.Join(dir, nodesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	for _, n := range nodes {
		if err := cgroups.Remove(group(prefix, n.Name())); err != nil {
			return fmt.Errorf("clean up %s: %w", dir, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	return nil
}

// CleanupDead removes every lab whose owner has ended without removing it, except labs with Survive.
func CleanupDead() error {
	dirs, err := os.ReadDir(stateRoot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list clusters: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		errs = append(errs, cleanupDead(d.Name()))
	}
	return errors.Join(errs...)
}

func cleanupDead(prefix string) error {
	dir := filepath.Join(stateRoot, prefix)
	if _, err := os.Stat(filepath.Join(dir, surviveFile)); err == nil {
		return nil
	}
	held, err := lock(dir)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil // it is in use, or was removed meanwhile
	}
	if err != nil {
		return err
	}
	return errors.Join(Cleanup(prefix), held.Close())
}
