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

// ask sends a daemon of Open vSwitch or OVN a command as ovs-appctl does, over the
// control socket that it has in its run folder: JSON-RPC. A socket that is left of an
// earlier process is passed over.
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
