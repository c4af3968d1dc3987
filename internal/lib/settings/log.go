package settings

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// Level parses --log-level.
func Level(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, fmt.Errorf("--log-level %q: want debug, info, warn or error", text)
	}
	return level, nil
}

// Log returns the logger for --log-level and --log-format. Untrusted text, such as names, is quoted
// where it is not plain, in messages too: each record is one line without control characters.
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
		return slog.New(slog.NewJSONHandler(term.JSON(w), opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", format)
}
