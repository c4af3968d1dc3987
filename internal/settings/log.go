package settings

import (
	"fmt"
	"io"
	"log/slog"
)

// Level reads --log-level.
func Level(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, fmt.Errorf("--log-level %q: want debug, info, warn or error", text)
	}
	return level, nil
}

// Log makes the log that --log-level and --log-format ask for.
func Log(level, format string, w io.Writer) (*slog.Logger, error) {
	l, err := Level(level)
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}
