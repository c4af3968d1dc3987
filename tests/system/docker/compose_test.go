package docker

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// composeFile holds the part of the compose format that the project uses. It is read
// strictly: a key that is misspelt, or used for the first time, is an error.
type composeFile struct {
	Name     string              `json:"name"`
	Services map[string]service  `json:"services"`
	Volumes  map[string]struct{} `json:"volumes"`
}

type service struct {
	Profiles    []string          `json:"profiles"`
	Build       build             `json:"build"`
	Image       string            `json:"image"`
	Command     []string          `json:"command"`
	Environment map[string]string `json:"environment"`
	NetworkMode string            `json:"network_mode"`
	GroupAdd    []string          `json:"group_add"`
	ReadOnly    bool              `json:"read_only"`
	CapDrop     []string          `json:"cap_drop"`
	SecurityOpt []string          `json:"security_opt"`
	Tmpfs       []string          `json:"tmpfs"`
	WorkingDir  string            `json:"working_dir"`
	Restart     string            `json:"restart"`
	Volumes     []mount           `json:"volumes"`
}

type build struct {
	Context    string            `json:"context"`
	Dockerfile string            `json:"dockerfile"`
	Target     string            `json:"target"`
	Args       map[string]string `json:"args"`
}

type mount struct {
	Type     string `json:"type"`
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	Bind     struct {
		CreateHostPath *bool `json:"create_host_path"`
	} `json:"bind"`
}

// composeDir is what paths in the compose file are relative to.
const composeDir = root + "/docker"

func TestComposeNamesExistingThings(t *testing.T) {
	for _, p := range checkCompose(read(t, "docker/compose.yaml"), read(t, "docker/Dockerfile")) {
		t.Error(p)
	}
}

// variable matches ${NAME} and ${NAME:-default}.
var variable = regexp.MustCompile(`\$\{[A-Z_]+(?::-([^}$]*))?\}`)

// checkCompose returns what is wrong with a compose file.
func checkCompose(text, dockerfile string) (problems []string) {
	stages, err := parseDockerfile(dockerfile)
	if err != nil {
		return []string{err.Error()}
	}
	text = variable.ReplaceAllString(text, "$1")
	if i := strings.Index(text, "$"); i >= 0 {
		// A variable without a default would be demanded for every profile.
		return []string{fmt.Sprintf("want ${NAME} or ${NAME:-default}: %.20q", text[i:])}
	}
	var file composeFile
	if err := yaml.UnmarshalStrict([]byte(text), &file); err != nil {
		return []string{err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Services)) {
		s := file.Services[name]
		for _, p := range slices.Concat(checkServiceBuild(s, stages), checkMounts(s, file.Volumes)) {
			problems = append(problems, "service "+name+": "+p)
		}
	}
	return problems
}

// checkServiceBuild checks what a service is built from and what it runs.
func checkServiceBuild(s service, stages []stage) (problems []string) {
	problems = append(problems, checkImage(s.Image)...)
	problems = append(problems, checkExists(composeDir, filepath.Join(s.Build.Context, "go.mod"))...)
	if want := "docker/Dockerfile"; s.Build.Dockerfile != want {
		problems = append(problems, fmt.Sprintf("is built from %q, not from %s", s.Build.Dockerfile, want))
	}
	target, ok := findStage(stages, s.Build.Target)
	program := targets[s.Build.Target]
	if !ok || program == "" {
		return append(problems, fmt.Sprintf("%q is not a target of the Dockerfile", s.Build.Target))
	}
	for arg := range s.Build.Args {
		if _, ok := target.pairs("ARG")[arg]; !ok {
			problems = append(problems, fmt.Sprintf("target %s takes no argument %s", target.name, arg))
		}
	}
	problems = append(problems, checkCommand(program, s.Command)...)
	for name := range s.Environment {
		problems = append(problems, checkSetting(program, s.Command, name)...)
	}
	return problems
}

// checkMounts checks where a service reads and writes. What is mounted from the host
// is read-only and must be there: docker would make a directory, owned by root.
func checkMounts(s service, volumes map[string]struct{}) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, m := range s.Volumes {
		switch m.Type {
		case "volume":
			if _, ok := volumes[m.Source]; !ok {
				complain("volume %q is not declared", m.Source)
			}
		case "bind":
			if !m.ReadOnly || m.Bind.CreateHostPath == nil || *m.Bind.CreateHostPath {
				complain("%s: want read_only: true and create_host_path: false", m.Source)
			}
			if !filepath.IsAbs(m.Source) {
				problems = append(problems, checkExists(composeDir, m.Source)...)
			}
		default:
			complain("mount of the type %q", m.Type)
		}
	}
	if s.ReadOnly && !s.writes("/run/sluice") {
		complain("cannot write the socket of the debug API")
	}
	if s.ReadOnly && slices.Contains(s.Command, "dev") && !s.writes("/tmp") {
		complain("cannot write the temporary files of the embedded etcd")
	}
	if s.ReadOnly && slices.Contains(s.Command, "run") && !s.writes("/var/lib/sluice") {
		complain("cannot keep the state that it enforces when it starts without etcd")
	}
	return problems
}

// writes reports whether a service with a read-only file system can write to a directory.
func (s service) writes(dir string) bool {
	return slices.Contains(s.Tmpfs, dir) || slices.ContainsFunc(s.Volumes, func(m mount) bool { return m.Target == dir && !m.ReadOnly })
}
