package flags

import (
	"fmt"
	"log/slog"

	"github.com/coe-bridge/coe-bridge/files"
)

// File is a flag with the path of a file.
type File struct{ Flag, Path string }

func (f File) file() files.File { return files.File{Flag: f.Flag[len("--"):], Path: f.Path} }

// Together fails if only one of two flags that need each other is set.
func Together(a, b File) error {
	if a.Path == "" && b.Path != "" {
		a, b = b, a
	}
	if a.Path != "" && b.Path == "" {
		return fmt.Errorf("%s is given without %s: a certificate and its key belong together", a.Flag, b.Flag)
	}
	return nil
}

// ClientTLS returns the TLS settings of a client, whose files are followed.
func ClientTLS(follow *files.Follower, ca, cert, key File) (*files.Client, error) {
	if err := Together(cert, key); err != nil {
		return nil, err
	}
	return follow.Client(ca.file(), cert.file(), key.file())
}

// ReadOnce returns a Follower that reads files once, for a command that ends soon.
func ReadOnce() *files.Follower { return files.New("coe", slog.New(slog.DiscardHandler)) }
