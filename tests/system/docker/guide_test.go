package docker

import (
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/system/guides"
)

var (
	// ours matches a command line of the guide that runs one of the programs.
	ours = regexp.MustCompile(`(?:^| )docker .*? (?:run --rm (ctl)|(sluice-agent|sluicectl)(?::\S+)?)(?: (.*))?$`)
	// composed and built match those that name services and stages.
	composed = regexp.MustCompile(`(?:^| )docker compose -f (\S+)(?: --profile (\S+))?`)
	built    = regexp.MustCompile(`(?:^| )docker build -f (\S+) --target (\S+) `)
)

func TestGuideShowsExistingCommands(t *testing.T) {
	commands, problems := checkGuide(read(t, "docs/guide/containers.md"), read(t, "docker/compose.yaml"))
	for _, p := range problems {
		t.Error(p)
	}
	if commands < 8 {
		t.Errorf("only %d commands of the guide were recognised", commands)
	}
}

// checkGuide returns how many commands of a guide were checked, and what is wrong with them.
func checkGuide(text, compose string) (commands int, problems []string) {
	for _, block := range guides.Blocks(text) {
		for _, line := range logicalLines(block.Text) {
			line, _, _ = strings.Cut(line, "  #")
			line = strings.Join(strings.Fields(line), " ")
			if strings.HasPrefix(line, "docker ") || strings.Contains(line, " docker ") {
				commands++
			}
			for _, p := range checkLine(line, compose) {
				problems = append(problems, line+": "+p)
			}
		}
	}
	return commands, problems
}

// checkLine checks one command line of the guide.
func checkLine(line, compose string) (problems []string) {
	if m := composed.FindStringSubmatch(line); m != nil {
		problems = append(problems, checkExists(root, m[1])...)
		if m[2] != "" && !strings.Contains(compose, "profiles: ["+m[2]+"]") {
			problems = append(problems, "there is no profile "+m[2])
		}
	}
	if m := built.FindStringSubmatch(line); m != nil {
		problems = append(problems, checkExists(root, m[1])...)
		if targets[m[2]] == "" {
			problems = append(problems, "there is no target "+m[2])
		}
		return problems
	}
	m := ours.FindStringSubmatch(line)
	if m == nil {
		return problems
	}
	program := m[2]
	if m[1] != "" {
		program = targets[m[1]]
	}
	args, err := split(m[3])
	if err != nil {
		return append(problems, err.Error())
	}
	return append(problems, checkCommand(program, args)...)
}
