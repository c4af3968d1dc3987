package kvstore

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ZapLogger returns a logger for etcd's client or server that writes to log, with lower levels.
// Important events are returned as errors as well, and the library logs ordinary events as errors.
// Its errors become warnings, everything else debug messages.
func ZapLogger(log *slog.Logger) *zap.Logger {
	return zap.New(zapCore{log.Handler()}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// zapCore is a zapcore.Core over a slog.Handler.
type zapCore struct{ to slog.Handler }

func demoted(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Enabled is part of zapcore.Core.
func (c zapCore) Enabled(l zapcore.Level) bool {
	return c.to.Enabled(context.Background(), demoted(l))
}

// With is part of zapcore.Core.
func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{c.to.WithAttrs(attrs(fields))}
}

// Check is part of zapcore.Core.
func (c zapCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write is part of zapcore.Core.
func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, demoted(e.Level), e.Message, 0)
	r.AddAttrs(slog.String("component", "etcd"))
	r.AddAttrs(attrs(fields)...)
	return c.to.Handle(context.Background(), r)
}

// Sync is part of zapcore.Core.
func (c zapCore) Sync() error { return nil }

// attrs converts fields through zap's encoder for maps: the types of fields determine where their
// values are.
func attrs(fields []zapcore.Field) []slog.Attr {
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		if v, ok := m.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
