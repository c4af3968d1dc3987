package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestExecuteEndsWith2ForACommandLineOrASettingThatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		text string
	}{
		"done":                {[]string{"do"}, 0, ""},
		"an unknown flag":     {[]string{"do", "--frobnicate"}, 2, "sluice-x: unknown flag: --frobnicate\n"},
		"an unknown command":  {[]string{"frobnicate"}, 2, "sluice-x: unknown command \"frobnicate\" for \"sluice-x\"\n"},
		"too many arguments":  {[]string{"do", "it"}, 2, "sluice-x: unknown command \"it\" for \"sluice-x do\"\n"},
		"a wrong value":       {[]string{"do", "--many=few"}, 2, "sluice-x: invalid argument"},
		"a wrong setting":     {[]string{"do", "--fail=setting"}, 2, "sluice-x: setting\n"},
		"what fails later":    {[]string{"do", "--fail=later"}, 1, "sluice-x: later\n"},
		"help is no error":    {[]string{"do", "--help"}, 0, ""},
		"and without command": {nil, 0, ""},
	} {
		root := &cobra.Command{Use: "sluice-x", SilenceErrors: true, SilenceUsage: true}
		var fail string
		do := &cobra.Command{Use: "do", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			switch fail {
			case "setting":
				return errors.Join(Usage(nil), Usage(errors.New(fail)))
			case "later":
				return errors.New(fail)
			}
			return Usage(nil)
		}}
		do.Flags().StringVar(&fail, "fail", "", "")
		do.Flags().Int("many", 0, "")
		root.AddCommand(do)
		root.SetArgs(append([]string{}, tc.args...))
		var out, errOut strings.Builder
		root.SetOut(&out)
		if code := Execute(t.Context(), root, &errOut); code != tc.code || !strings.HasPrefix(errOut.String(), tc.text) || (tc.text == "") != (errOut.Len() == 0) {
			t.Errorf("%s: exit code %d, want %d, %q", name, code, tc.code, errOut.String())
		}
	}
}
