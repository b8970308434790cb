package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// ask sends a command to a daemon of Open vSwitch or OVN, as ovs-appctl does: JSON-RPC over
// a control socket in the run directory. It tries the next socket if one belongs to a dead
// process.
func ask(ctx context.Context, runDir, daemon, command string) (string, error) {
	if _, err := os.Stat(runDir); err != nil {
		return "", err
	}
	sockets, err := filepath.Glob(filepath.Join(runDir, daemon+".*.ctl"))
	if err != nil {
		return "", err
	}
	if len(sockets) == 0 {
		return "", fmt.Errorf("%s has no control socket in %s", daemon, runDir)
	}
	var errs []error
	for _, socket := range sockets {
		answer, err := askAt(ctx, socket, command)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func askAt(ctx context.Context, socket, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	question := map[string]any{"id": 0, "method": command, "params": []string{}}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return "", fmt.Errorf("ask %s: %w", socket, errors.Join(ctx.Err(), err))
	}
	var answer struct {
		Result string `json:"result"`
		Error  any    `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return "", fmt.Errorf("wait for %s: %w", socket, errors.Join(ctx.Err(), err))
	}
	if answer.Error != nil {
		return "", fmt.Errorf("ask %s for %s: %v", socket, command, answer.Error)
	}
	return strings.TrimSpace(answer.Result), nil
}
