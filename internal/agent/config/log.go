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

// Log says what is logged, and how.
type Log struct {
	Level    string `koanf:"log-level"`
	Format   string `koanf:"log-format"`
	Verdicts string `koanf:"log-verdicts"`
	Traces   string `koanf:"traces-endpoint"`
}

// What --log-verdicts can be.
const (
	verdictsNone = "none"
	verdictsDeny = "deny"
	verdictsAll  = "all"
)

func logFlags(f *pflag.FlagSet) {
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("traces-endpoint", "", tracing.Usage)
	f.String("log-verdicts", verdictsNone, "log every second what rules decided: none, deny or all (at level info; where the dataplane counts)")
}

// New makes the log.
func (l Log) New(w io.Writer) (*slog.Logger, error) { return settings.Log(l.Level, l.Format, w) }

// Verdict reports whether what rules decided is logged, and whether only denials are.
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
