package odlpods

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// The clients of the bridge: its operator, and the agents.
const (
	operator = "admin"
	agent    = "agent"
)

// users is the directory with the credentials, readable only by root: the bridge's users, their
// passwords, and the bridge's credentials for OpenDaylight.
type users struct{ dir string }

func (u users) path(name string) string     { return filepath.Join(u.dir, name) }
func (u users) file() string                { return u.path("users") }
func (u users) password(user string) string { return u.path(user + ".password") }
func (u users) controller() string          { return u.path("odl.auth") }

// write creates users with random passwords.
func (u users) write(ctx context.Context, program string) error {
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return fmt.Errorf("make folder of the bridge: %w", err)
	}
	files := map[string]string{u.controller(): odl.User + ":" + odl.Password + "\n"}
	for user, role := range map[string]string{operator: "writer", agent: "reader"} {
		password := rand.Text() + "\n"
		cmd := exec.CommandContext(ctx, program, "passwd", user, "--role", role)
		cmd.Stdin = strings.NewReader(password)
		line, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("make user %s: %w", user, err)
		}
		files[u.password(user)] = password
		files[u.file()] += string(line)
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write users: %w", err)
		}
	}
	return nil
}
