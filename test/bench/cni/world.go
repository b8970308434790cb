package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/install"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// prefix names the lab.
const prefix = "benchcni"

// credentials are the name and the password of the only user.
const credentials = "admin"

// world has OVN hosts, a bridge with their databases, and an agent on each host.
type world struct {
	*bench
	lab    *ovnhost.Lab
	http   *http.Client
	url    string
	agents map[string]*ovnhost.Process
	watch  map[string]*watch // of the hosts' switches
}

// newWorld starts a world.
func newWorld(ctx context.Context, b *bench, hosts ...string) (w *world, err error) {
	w = &world{bench: b, agents: map[string]*ovnhost.Process{}, watch: map[string]*watch{}}
	b.say("starting OVN on %d hosts", len(hosts))
	if w.lab, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: prefix, Hosts: hosts, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if err := w.start(ctx, hosts); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) start(ctx context.Context, hosts []string) error {
	if err := w.startBridge(ctx); err != nil {
		return err
	}
	for i, host := range hosts {
		if err := w.put(ctx, fmt.Sprintf("k8s-node:k8s-nodes-info/k8s-nodes/%s", uid("0", i)), fmt.Sprintf(
			`{"k8s-nodes":[{"uid":%q,"host-name":%q,"internal-ip-address":%q}]}`, uid("0", i), host, w.lab.Host(host).Address)); err != nil {
			return err
		}
		if err := w.startAgent(ctx, host); err != nil {
			return err
		}
		var err error
		if w.watch[host], err = newWatch(ctx, w.lab.Host(host).OVSDB.Remote); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) startBridge(ctx context.Context) error {
	address := net.JoinHostPort(ovnhost.Central.String(), "8181")
	w.url = "http://" + address
	w.http = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: atOnce,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return w.lab.Dial(ctx, ovnhost.CentralNamespace, network, address)
		},
	}}
	users, err := w.usersFile(ctx)
	if err != nil {
		return err
	}
	_, err = w.lab.Launch(ctx, ovnhost.Command{
		Name: "bridge", Pod: ovnhost.CentralNamespace,
		Argv: []string{
			filepath.Join(w.dir, "coe-bridge"), "serve", "--auth-file", users, "--data-dir", filepath.Join(w.lab.Dir, "data"), "--listen", address,
			"--backend", "ovn", "--ovn-nb", w.lab.NB.Remote, "--pool", "10.42.0.0/16", "--address-reuse-delay", "1s",
		},
		Ready: func(ctx context.Context) error { return w.ask(ctx, http.MethodGet, "/readyz", "") },
	})
	return err
}

// usersFile writes the file of users that the bridge reads, and returns its path.
func (w *world) usersFile(ctx context.Context) (path string, err error) {
	passwd := exec.CommandContext(ctx, filepath.Join(w.dir, "coe-bridge"), "passwd", credentials)
	passwd.Stdin = strings.NewReader(credentials + "\n")
	line, err := passwd.Output()
	if err != nil {
		return "", fmt.Errorf("make the line of a user: %w", err)
	}
	path = filepath.Join(w.lab.Dir, "users")
	if err := os.WriteFile(path, line, 0o600); err != nil {
		return "", fmt.Errorf("write the users: %w", err)
	}
	return path, nil
}

func (w *world) startAgent(ctx context.Context, host string) (err error) {
	dir := filepath.Join(w.lab.Dir, host)
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(credentials), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	installed := install.Config{
		Plugin: filepath.Join(w.dir, install.PluginName), BinDir: dir, Socket: w.socket(host), Log: slog.New(slog.DiscardHandler),
	}
	if err := installed.InstallPlugin(); err != nil {
		return err
	}
	w.agents[host], err = w.lab.Launch(ctx, ovnhost.Command{
		Name: host + "/agent", Pod: host,
		Argv: []string{
			filepath.Join(w.dir, "coe-bridge"), "agent", "--bridge", w.url, "--node-address", w.lab.Host(host).Address.String(),
			"--user", credentials, "--password-file", password, "--ovs-db", w.lab.Host(host).OVSDB.Remote,
			"--socket", w.socket(host), "--state-dir", filepath.Join(dir, "agent"),
		},
		Ready: func(ctx context.Context) error {
			_, err := w.lab.HTTPGet(ctx, host, "http://127.0.0.1:8182/readyz")
			return err
		},
	})
	return err
}

func (w *world) socket(host string) string { return filepath.Join(w.lab.Dir, host, "cni.sock") }

func (w *world) close() error {
	for _, one := range w.watch {
		one.client.Close()
	}
	w.http.CloseIdleConnections()
	return w.lab.Close()
}

// uid returns a UUID with a kind, which is a hexadecimal digit, and a number.
func uid(kind string, n int) string { return fmt.Sprintf("c0e%s0000-c0e0-4000-8000-%012d", kind, n) }

// put writes data at a path below the configuration.
func (w *world) put(ctx context.Context, path, body string) error {
	return w.ask(ctx, http.MethodPut, "/restconf/config/"+path, body)
}

func (w *world) ask(ctx context.Context, method, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.SetBasicAuth(credentials, credentials)
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return nil
}

// steps returns the average durations of the agent's steps.
func (w *world) steps(ctx context.Context, host string) (string, error) {
	page, err := w.lab.HTTPGet(ctx, host, "http://127.0.0.1:8182/metrics")
	if err != nil {
		return "", err
	}
	var text []string
	for _, m := range regexp.MustCompile(`coe_agent_step_seconds_sum\{step="(\w+)"\} (\S+)\n.*_count\{\S+\} (\S+)`).FindAllStringSubmatch(page, -1) {
		sum, _ := strconv.ParseFloat(m[2], 64)
		count, _ := strconv.ParseFloat(m[3], 64)
		text = append(text, fmt.Sprintf("%s %.1f ms", m[1], 1e3*sum/count))
	}
	return strings.Join(text, ", "), nil
}
