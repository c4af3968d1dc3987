package settings

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes of the daemons; those of sluicectl have the same 2.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // nothing was begun: the command line, or a setting, is wrong
)

// errUsage is an error of settings.
type errUsage struct{ error }

// Unwrap returns what is wrong.
func (e errUsage) Unwrap() error { return e.error }

// Usage marks an error of settings, so that Execute does not take it for something that failed later. It
// is nil for nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return errUsage{err}
}

// Execute runs the commands of a daemon, writes the error if there is one, and returns the exit
// code: 2 where the command line or a setting is wrong, 1 for what failed later.
func Execute(ctx context.Context, cmd *cobra.Command, errOut io.Writer) int {
	begun := false
	cmd.PersistentPreRun = func(*cobra.Command, []string) { begun = true } // flags and arguments are right
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintln(errOut, cmd.Name()+": "+err.Error()) // there is nobody else to report to
	if _, isUsage := errors.AsType[errUsage](err); isUsage || !begun {
		return exitUsage
	}
	return exitFailed
}
