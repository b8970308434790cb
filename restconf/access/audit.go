package access

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// Record is one request for a change, and its result.
type Record struct {
	Who      Identity
	From     string // address and port
	Method   string
	Path     string // as it was sent, without the query
	Status   int
	Revision int64 // of the datastore, that it made; 0 where it made none
}

// Audit is the log of writes: a line of JSON each. It has no bodies. A file that
// was renamed or removed, as log rotation does, is created again; one that was truncated
// is gone on with at its end.
type Audit struct {
	path    string // empty: out is not ours
	records *slog.Logger
	metrics *metrics
	log     *slog.Logger

	mu     sync.Mutex
	out    io.Writer
	file   *os.File // out, where it is ours
	broken bool     // the last line may be incomplete

	lost bool // the file is gone from its path and cannot be created again
}

func openAudit(cfg Config, m *metrics, log *slog.Logger) (*Audit, error) {
	if cfg.AuditLog == "" {
		return nil, nil
	}
	a := &Audit{metrics: m, log: log, out: cfg.AuditOutput}
	a.records = slog.New(slog.NewJSONHandler(a, &slog.HandlerOptions{ReplaceAttr: withoutLevel}))
	if cfg.AuditLog == "-" {
		return a, nil
	}
	a.path = cfg.AuditLog
	if err := a.reopen(); err != nil {
		return nil, fmt.Errorf("open --audit-log: %w", err)
	}
	return a, nil
}

func withoutLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// Record writes r down. Where that fails the log and a metric say so: what was done
// is done.
func (a *Audit) Record(r Record) {
	if a == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("user", r.Who.Name), slog.String("role", r.Who.Role.String()), slog.String("by", r.Who.By),
		slog.String("from", r.From), slog.String("method", r.Method), slog.String("path", r.Path), slog.Int("status", r.Status),
	}
	if r.Revision > 0 {
		attrs = append(attrs, slog.Int64("revision", r.Revision))
	}
	a.records.LogAttrs(context.Background(), slog.LevelInfo, "write", attrs...)
}

// Write implements io.Writer, for whole lines.
func (a *Audit) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken {
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.out.Write(line)
	if err != nil {
		a.metrics.unrecorded.Inc()
		if !a.broken {
			a.log.Error("write can't be recorded in the audit log", "err", err)
		}
	}
	a.broken = err != nil
	return n, err
}

// look creates the file again if it is gone from its path.
func (a *Audit) look() {
	if a == nil || a.path == "" {
		return
	}
	open, err := a.file.Stat()
	at, missing := os.Stat(a.path)
	if err == nil && missing == nil && os.SameFile(open, at) {
		return
	}
	err = a.reopen()
	if err != nil && !a.lost {
		a.log.Error("open the audit log again", "err", err)
	}
	a.lost = err != nil
}

func (a *Audit) reopen() error {
	file, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.file
	a.file, a.out, a.broken = file, file, false
	if old == nil {
		return nil
	}
	return old.Close()
}

func (a *Audit) close() error {
	if a == nil || a.path == "" {
		return nil
	}
	return a.file.Close()
}
