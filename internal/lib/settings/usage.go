package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// UsageError is returned for an invalid command line, or invalid settings.
type UsageError struct{ Err error }

// Error returns the text of the cause.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.Err }

// Usage returns err as a UsageError, and nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// Execute runs a daemon's command until SIGINT or SIGTERM, and returns its error.
func Execute(cmd *cobra.Command, args []string, out, errOut io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// Exit writes the error of a daemon's command on one line and returns its exit code. That is 2 for
// an invalid command line or settings, 1 for other errors, 0 for none.
func Exit(err error, program string, errOut io.Writer) int {
	if err == nil {
		return 0
	}
	err = UnknownCommand(err)
	_, _ = fmt.Fprintf(errOut, "%s: %s\n", program, term.Lines(strings.ReplaceAll(err.Error(), "\n", "; ")))
	if _, usage := errors.AsType[UsageError](err); usage {
		return 2
	}
	return 1
}

// FlagError turns an error of flags into a UsageError that suggests the flag which was probably
// meant. It is for SetFlagErrorFunc.
func FlagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return UsageError{err}
	}
	if likely, found := strict.Nearest(unknown.GetSpecifiedName(), flagNames(cmd.Flags())); found {
		return UsageError{fmt.Errorf("%w: did you mean --%s?", err, likely)}
	}
	return UsageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
}

// UnknownCommand turns cobra's error for an unknown command, which has no type and several lines
// where it suggests others, into a UsageError. It returns other errors unchanged.
func UnknownCommand(err error) error {
	text, suggestions, suggests := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !strings.HasPrefix(text, "unknown command ") {
		return err
	}
	if suggests {
		text += ": did you mean " + strings.Join(strings.Fields(suggestions), " or ") + "?"
	}
	return UsageError{errors.New(text)}
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return UsageError{fmt.Errorf("%s takes no arguments, and got %q", cmd.Name(), args[0])}
}
