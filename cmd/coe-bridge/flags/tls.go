package flags

import (
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/coe-bridge/coe-bridge/files"
)

// FileVar adds a flag with the path of a file.
func FileVar(set *pflag.FlagSet, f *files.File, name, usage string) {
	f.Flag = name
	set.StringVar(&f.Path, name, "", usage)
}

// Together fails if only one of a certificate and its key is given.
func Together(cert, key files.File) error {
	if cert.Path == "" && key.Path != "" {
		cert, key = key, cert
	}
	if cert.Path != "" && key.Path == "" {
		return fmt.Errorf("--%s is given without --%s: a certificate and its key belong together", cert.Flag, key.Flag)
	}
	return nil
}

// TLS has the flags of a client's TLS: the CA of servers, and the client's certificate with its key.
type TLS struct{ CA, Cert, Key files.File }

// Client returns the TLS settings, whose files are followed.
func (t *TLS) Client(follow *files.Follower) (*files.Client, error) {
	if err := Together(t.Cert, t.Key); err != nil {
		return nil, err
	}
	return follow.Client(t.CA, t.Cert, t.Key)
}

// ReadOnce returns a Follower that reads files once, for a command that ends soon.
func ReadOnce() *files.Follower { return files.New("coe", slog.New(slog.DiscardHandler)) }
