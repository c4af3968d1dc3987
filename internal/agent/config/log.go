package config

import (
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/tracing"
)

// Log has the settings of the log.
type Log struct {
	Level    string `koanf:"log-level"`
	Format   string `koanf:"log-format"`
	Verdicts string `koanf:"log-verdicts"`
	Traces   string `koanf:"traces-endpoint"`
	Keep     string `koanf:"verdict-history"`
	Places   uint32 `koanf:"verdict-history-size"`
}

// maxPlaces bounds --verdict-history-size: a verdict takes about half a KiB.
const maxPlaces = 1 << 20

// Values of --log-verdicts and --verdict-history.
const (
	verdictsNone = "none"
	verdictsDeny = "deny"
	verdictsAll  = "all"
)

func logFlags(f *pflag.FlagSet) {
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("traces-endpoint", "", tracing.Usage)
	f.String("log-verdicts", verdictsNone, "log the verdicts of rules every second: none, deny or all (at level info, where the dataplane has rule counters)")
	f.String("verdict-history", verdictsDeny, "verdicts of packets to keep for sluicectl watch verdicts --since and top: none, deny or all")
	f.Uint32("verdict-history-size", 4096, "verdicts to keep, half a KiB each; pods share them, so that one pod's flood does not displace the verdicts of all others")
}

// New returns the logger.
func (l Log) New(w io.Writer) (*slog.Logger, error) { return settings.Log(l.Level, l.Format, w) }

// Verdict reports whether verdicts are logged, and whether only denials are.
func (l Log) Verdict() (logged, denials bool) {
	return l.Verdicts != verdictsNone, l.Verdicts == verdictsDeny
}

// History returns which verdicts are kept, and how many.
func (l Log) History() (keep verdicts.Wanted, places int) {
	return map[string]verdicts.Wanted{verdictsDeny: verdicts.Denied, verdictsAll: verdicts.All}[l.Keep], int(l.Places)
}

func (l Log) check() error {
	if _, err := l.New(io.Discard); err != nil {
		return err
	}
	for name, value := range map[string]string{"log-verdicts": l.Verdicts, "verdict-history": l.Keep} {
		if !slices.Contains([]string{verdictsNone, verdictsDeny, verdictsAll}, value) {
			return fmt.Errorf("--%s %q: want none, deny or all", name, value)
		}
	}
	if l.Places > maxPlaces {
		return fmt.Errorf("--verdict-history-size %d: want %d at most", l.Places, maxPlaces)
	}
	return nil
}
