package config

import (
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/internal/tracing"
)

// Log has the settings of the log.
type Log struct {
	Level    string `koanf:"log-level"`
	Format   string `koanf:"log-format"`
	Verdicts string `koanf:"log-verdicts"`
	Traces   string `koanf:"traces-endpoint"`
}

// Values of --log-verdicts.
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
}

// New returns the logger.
func (l Log) New(w io.Writer) (*slog.Logger, error) { return settings.Log(l.Level, l.Format, w) }

// Verdict reports whether verdicts are logged, and whether only denials are.
func (l Log) Verdict() (logged, denials bool) {
	return l.Verdicts != verdictsNone, l.Verdicts == verdictsDeny
}

func (l Log) check() error {
	if _, err := l.New(io.Discard); err != nil {
		return err
	}
	if !slices.Contains([]string{verdictsNone, verdictsDeny, verdictsAll}, l.Verdicts) {
		return fmt.Errorf("--log-verdicts %q: want none, deny or all", l.Verdicts)
	}
	return nil
}
