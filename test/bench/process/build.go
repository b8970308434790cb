package process

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// Built is the program of the bridges of a benchmark, and the file of their users.
type Built struct{ Program, UsersFile string }

// Open opens a workspace, builds the program there, unless it is given, and writes the file of users. Their user is serve.User.
func Open(ctx context.Context, name, program string) (*figures.Workspace, Built, error) {
	w, err := figures.NewWorkspace(name, "")
	if err != nil {
		return nil, Built{}, err
	}
	b, err := build(ctx, w, program)
	if err != nil {
		return nil, b, errors.Join(err, w.Close())
	}
	return w, b, nil
}

func build(ctx context.Context, w *figures.Workspace, program string) (b Built, err error) {
	b = Built{Program: program, UsersFile: w.File("users")}
	// A bcrypt hash, as in production.
	hash, err := access.HashPassword(serve.Password, access.Bcrypt)
	if err != nil {
		return b, fmt.Errorf("hash the password: %w", err)
	}
	if err := os.WriteFile(b.UsersFile, []byte(serve.User+":writer:"+hash+"\n"), 0o600); err != nil {
		return b, fmt.Errorf("write the file of users: %w", err)
	}
	if b.Program == "" {
		w.Say("building the bridge")
		b.Program, err = serve.Build(ctx, w.Dir)
	}
	return b, err
}
