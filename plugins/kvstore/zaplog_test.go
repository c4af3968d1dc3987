package kvstore_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"go.uber.org/zap"

	"github.com/sluice-net/sluice/plugins/kvstore"
)

func TestZapLoggerLogsToSlogDemoted(t *testing.T) {
	for name, c := range map[string]struct {
		level slog.Level
		say   func(l *zap.Logger)
		want  string
	}{
		"an error is a warning": {
			slog.LevelInfo, func(l *zap.Logger) { l.Error("broke", zap.Error(errors.New("why")), zap.Int("n", 3)) },
			"level=WARN msg=broke component=etcd error=why n=3\n",
		},
		"a warning is for debugging": {
			slog.LevelDebug, func(l *zap.Logger) { l.With(zap.String("a", "b")).Warn("hm") },
			"level=DEBUG msg=hm a=b component=etcd\n",
		},
		"what is not wanted is not written": {
			slog.LevelInfo, func(l *zap.Logger) { l.Warn("hm"); l.Info("so") }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.say(kvstore.ZapLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
				Level: c.level,
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				},
			}))))
			if out.String() != c.want {
				t.Errorf("got  %swant %s", out.String(), c.want)
			}
		})
	}
}
