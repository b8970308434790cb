package datastore

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// zapCore hands etcd's log to slog. Warnings of etcd are for its developers; an
// error of its is one for our operator.
type zapCore struct{ log *slog.Logger }

func newZapCore(log *slog.Logger) zapcore.Core {
	return zapCore{log.With("component", "etcd")}
}

func slogLevel(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelError
	}
	return slog.LevelDebug
}

// Enabled implements zapcore.LevelEnabler.
func (c zapCore) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), slogLevel(l))
}

// With implements zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{c.log.With(attrs(fields)...)}
}

// Check implements zapcore.Core.
func (c zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// harmless are errors of etcd's that nobody can or need act on: it goes on by
// itself. The first comes with every new database.
var harmless = map[string]bool{"failed to update storage version": true}

// Write implements zapcore.Core.
func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if harmless[e.Message] {
		e.Level = zapcore.DebugLevel
	}
	c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attrs(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c zapCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]any, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
