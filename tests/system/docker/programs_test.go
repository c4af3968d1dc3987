package docker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/agent/devstore"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/reflector"
)

// root is the top of the repository.
const root = "../../.."

// programs run the commands of cmd/ in this process.
var programs = map[string]func(args []string, out *bytes.Buffer) int{
	"sluice-agent":   func(args []string, out *bytes.Buffer) int { return agent.Main(args, out, out) },
	"sluice-dev":     func(args []string, out *bytes.Buffer) int { return agent.DevMain(args, devstore.Start, out, out) },
	"sluice-ksr":     func(args []string, out *bytes.Buffer) int { return reflector.Main(args, out, out) },
	"sluice-neutron": func(args []string, out *bytes.Buffer) int { return agent.NeutronMain(args, out, out) },
	"sluicectl": func(args []string, out *bytes.Buffer) int {
		return cli.Run(args, strings.NewReader(""), out, out)
	},
}

// help asks a program for help about a command line. The program looks up the command
// and reads all flags before it prints the help, so that an unknown command, an unknown
// flag or a bad value is an error.
func help(program string, args []string) (string, error) {
	run, ok := programs[program]
	if !ok {
		return "", fmt.Errorf("there is no program %q", program)
	}
	var out bytes.Buffer
	if code := run(append(slices.Clone(args), "--help"), &out); code != 0 {
		return "", fmt.Errorf("%s %s: %s", program, strings.Join(args, " "), strings.TrimSpace(out.String()))
	}
	return out.String(), nil
}

// checkCommand returns what is wrong with a command line of a program.
func checkCommand(program string, args []string) []string {
	if _, err := help(program, args); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// checkSetting returns what is wrong with an environment variable of a program:
// those of Sluice must be known to the given command.
func checkSetting(program string, command []string, name string) []string {
	setting, ours := strings.CutPrefix(name, settings.EnvPrefix)
	if !ours {
		return nil
	}
	text, err := help(program, command)
	if err != nil {
		return nil // is reported for the command
	}
	text = strings.Join(strings.Fields(text), " ") // lines are broken anywhere
	flag := "--" + strings.ReplaceAll(strings.ToLower(setting), "_", "-")
	if strings.Contains(text, flag+" ") || strings.Contains(text, "(env "+name+")") {
		return nil
	}
	return []string{fmt.Sprintf("%s %s has no setting %s", program, strings.Join(command, " "), name)}
}

// registry matches image names that begin with the host of a registry.
var registry = regexp.MustCompile(`^(localhost|[^/]*[.:][^/]*)/`)

// checkImage returns what is wrong with the name of an image. The project names no registry: the
// builder decides where images come from.
func checkImage(name string) []string {
	switch {
	case registry.MatchString(name):
		return []string{fmt.Sprintf("image %s names a registry", name)}
	case !strings.Contains(name, ":") || strings.HasSuffix(name, ":latest"):
		return []string{fmt.Sprintf("image %s has no version", name)}
	}
	return nil
}

// checkExists returns a problem when nothing is at the path, relative to dir.
func checkExists(dir, path string) []string {
	if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
		return []string{fmt.Sprintf("%s does not exist", path)}
	}
	return nil
}
