package main

import (
	"fmt"
	"log/slog"

	"github.com/coe-bridge/coe-bridge/files"
)

// fileFlag is a flag that names a file.
type fileFlag struct{ flag, path string }

func (f fileFlag) file() files.File { return files.File{Flag: f.flag[len("--"):], Path: f.path} }

// together fails when one of two flags that need each other is given alone.
func together(a, b fileFlag) error {
	if a.path == "" && b.path != "" {
		a, b = b, a
	}
	if a.path != "" && b.path == "" {
		return fmt.Errorf("%s is given without %s: a certificate and its key belong together", a.flag, b.flag)
	}
	return nil
}

// clientTLS has the files of a client's TLS followed.
func clientTLS(follow *files.Follower, ca, cert, key fileFlag) (*files.Client, error) {
	if err := together(cert, key); err != nil {
		return nil, err
	}
	return follow.Client(ca.file(), cert.file(), key.file())
}

// readOnce returns a Follower for a command that ends soon: it reads the files once.
func readOnce() *files.Follower { return files.New("coe", slog.New(slog.DiscardHandler)) }
