package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// Workspace has what all measurements of a program use: a folder, a place for progress, and a CPU
// profile.
type Workspace struct {
	Dir     string // for all files; Close removes it
	begun   time.Time
	profile *os.File // nil for none
}

// NewWorkspace creates a workspace. It writes a CPU profile to a file; an empty path means no profile.
func NewWorkspace(name, profile string) (w *Workspace, err error) {
	w = &Workspace{begun: time.Now()}
	if w.Dir, err = os.MkdirTemp("", name); err != nil {
		return nil, fmt.Errorf("make a folder for the measurements: %w", err)
	}
	if profile == "" {
		return w, nil
	}
	if w.profile, err = os.Create(profile); err == nil {
		err = pprof.StartCPUProfile(w.profile)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the profile: %w", err), w.Close())
	}
	return w, nil
}

// Close writes the profile, and removes the folder.
func (w *Workspace) Close() error {
	var err error
	if w.profile != nil {
		pprof.StopCPUProfile()
		err = w.profile.Close()
	}
	return errors.Join(err, os.RemoveAll(w.Dir))
}

// File returns a path in the folder.
func (w *Workspace) File(name string) string { return filepath.Join(w.Dir, name) }

// Say reports progress.
func (w *Workspace) Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
}

// Folder creates a folder in the folder of the workspace.
func (w *Workspace) Folder(name string) (string, error) {
	dir, err := os.MkdirTemp(w.Dir, name)
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return dir, nil
}
