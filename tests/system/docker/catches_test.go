package docker

import (
	"strings"
	"testing"
)

// edit returns a text in which one thing was changed.
func edit(t *testing.T, text, was, is string) string {
	t.Helper()
	if !strings.Contains(text, was) {
		t.Fatalf("there is no %q to change", was)
	}
	return strings.ReplaceAll(text, was, is)
}

// wantProblem checks that one problem says the text.
func wantProblem(t *testing.T, problems []string, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(problems, "\n"), want) {
		t.Errorf("problems are %q, want one with %q", problems, want)
	}
}

// TestDockerfileErrorsAreFound breaks the Dockerfile as changes elsewhere would.
func TestDockerfileErrorsAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ was, is, want string }{
		"another Go version":                 {"golang:1.26-", "golang:1.25-", "not of the Go version"},
		"a registry":                         {"FROM golang:", "FROM registry.example/library/golang:", "names a registry"},
		"no version of an image":             {"golang:1.26-bookworm", "golang", "has no version"},
		"a missing file":                     {"COPY go.mod go.sum ./", "COPY go.mod go.work ./", "go.work does not exist"},
		"an unknown stage to copy from":      {"AS build", "AS builder", "unknown stage build"},
		"another build flag":                 {"-tags grpcnotrace ", "", "the build command is"},
		"a missing command":                  {"./cmd/sluicectl", "./cmd/sluice-cli", "sluice-cli/main.go does not exist"},
		"a linker variable that is not":      {"version.version=", "version.number=", "the linker sets"},
		"a linker package that is not":       {"internal/lib/version.", "internal/release.", "the linker sets"},
		"no target":                          {"AS ctl", "AS cli", "there is no stage ctl"},
		"root":                               {"USER 65532:65532", "USER 0:0", "not root"},
		"a user by name":                     {"USER 65532:65532", "USER nobody", "not root"},
		"another entry point":                {`"/usr/bin/sluice-agent"`, `"/usr/bin/agent"`, "ENTRYPOINT [/usr/bin/agent]"},
		"a program that is not copied":       {"/out/sluice-agent /usr/bin/", "/out/sluice-agent /bin/", "is not copied"},
		"a label that is missing":            {"image.source", "image.origin", "no label org.opencontainers.image.source"},
		"a setting of the agent that is not": {"ENV SLUICE_API_SOCKET", "ENV SLUICE_SOCKET", "sluice-dev dev has no setting SLUICE_SOCKET"},
		"a setting of sluicectl that is not": {"ENV SLUICE_API_SOCKET", "ENV SLUICE_RENDERERS", "sluicectl  has no setting SLUICE_RENDERERS"},
		"a base with a file system":          {"FROM scratch AS agent", "FROM build AS agent", "not from scratch"},
		"an open quote":                      {`title="sluicectl"`, `title="sluicectl`, "a quote is not closed"},
		"an instruction without a stage":     {"FROM golang:1.26-bookworm AS build", "", "before the first FROM"},
		"a stage without a name":             {"golang:1.26-bookworm AS build", "golang:1.26-bookworm", "want FROM image AS name"},
		"an entry point that is no list":     {`["/usr/bin/sluicectl"]`, `["/usr/bin/sluicectl"`, "ENTRYPOINT"},
	} {
		t.Run(name, func(t *testing.T) {
			text := edit(t, read(t, "docker/Dockerfile"), tc.was, tc.is)
			wantProblem(t, checkDockerfile(text, read(t, "Makefile"), read(t, "go.mod")), tc.want)
		})
	}
}

func TestComposeErrorsAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ was, is, want string }{
		"a flag that is not":                {"--manifests", "--manifest", "unknown flag: --manifest"},
		"a command that is not":             {"command: [run]", "command: [start]", `unknown command "start"`},
		"a setting that is not":             {"SLUICE_ETCD_ENDPOINTS", "SLUICE_ETCD_ENDPOINT", "no setting SLUICE_ETCD_ENDPOINT"},
		"a setting of another command":      {"SLUICE_NODE:", "SLUICE_ETCD_DIR:", "sluice-agent run has no setting SLUICE_ETCD_DIR"},
		"a path that is not":                {"docs/examples/shop}", "docs/examples/store}", "store does not exist"},
		"a context that is not":             {"context: ..", "context: .", "go.mod does not exist"},
		"another Dockerfile":                {"docker/Dockerfile", "Dockerfile", "is built from"},
		"a target that is none":             {"target: ctl", "target: build", `"build" is not a target`},
		"an argument that is not":           {"VERSION: ${VERSION:-unknown}", "RELEASE: ${VERSION:-unknown}", "takes no argument RELEASE"},
		"a registry":                        {"image: sluicectl:", "image: registry.example:5000/sluicectl:", "names a registry"},
		"a key that is not":                 {"cap_drop", "capdrop", "capdrop"},
		"a key that is there twice":         {"    command: [run]", "    command: [run]\n    command: [dev]", "already set"},
		"a variable that must be set":       {"${NODE:-}", "${NODE:?set it}", "want ${NAME} or ${NAME:-default}"},
		"a volume that is not declared":     {"volumes:\n  run: {}", "volumes:\n  other: {}", `volume "run" is not declared`},
		"a state that is not kept":          {"target: /var/lib/sluice}", "target: /var/lib/sluices}", "cannot keep the state"},
		"a writable mount":                  {"target: /manifests, read_only: true", "target: /manifests", "want read_only: true"},
		"a mount that docker would make":    {", bind: {create_host_path: false}", "", "create_host_path: false"},
		"a kind of mount that is not known": {"type: volume", "type: tmpfs", `mount of the type "tmpfs"`},
		"no place for temporary files":      {"    tmpfs: [/tmp]\n", "", "temporary files"},
		"no place for the socket":           {"target: /run/sluice", "target: /run/sluiced", "socket of the debug API"},
	} {
		t.Run(name, func(t *testing.T) {
			text := edit(t, read(t, "docker/compose.yaml"), tc.was, tc.is)
			wantProblem(t, checkCompose(text, read(t, "docker/Dockerfile")), tc.want)
		})
	}
}

func TestDockerignoreErrorsAreFound(t *testing.T) {
	text := read(t, ".dockerignore")
	wantProblem(t, checkIgnore(edit(t, text, "!renderer\n", ""), []string{"renderer/acl"}), "the build needs renderer/acl")
	wantProblem(t, checkIgnore(text, []string{"apis/model"}), "the build needs apis/model")
	wantProblem(t, checkIgnore(edit(t, text, "!api\n", "!apis\n"), nil), "apis does not exist")
	wantProblem(t, checkIgnore(edit(t, text, "!api\n", "api\n"), nil), "want !PATH")
	wantProblem(t, checkIgnore(edit(t, text, "*\n", ""), nil), "the first line must be *")
}

func TestGuideErrorsAreFound(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"a command that is not":        {"docker compose -f docker/compose.yaml run --rm ctl show pods", `unknown command "show"`},
		"a flag that is not":           {"docker run --rm -v $PWD:/manifests:ro sluice-agent:dev dev --onze", "unknown flag: --onze"},
		"a flag of another program":    {"docker run sluicectl:dev test --once a.yaml", "unknown flag: --once"},
		"a compose file that is not":   {"docker compose -f docker/compose.yml up", "docker/compose.yml does not exist"},
		"a profile that is not":        {"NODE=a docker compose -f docker/compose.yaml --profile vpp up", "no profile vpp"},
		"a target that is not":         {"docker build -f docker/Dockerfile --target cli -t x .", "no target cli"},
		"a Dockerfile that is not":     {"docker build -f docker/agent.Dockerfile --target agent -t x .", "does not exist"},
		"a command over two lines":     {"docker run --rm \\\n  sluicectl:dev apply --file x", "unknown flag: --file"},
		"a command before its comment": {"docker run sluicectl:dev tests a.yaml  # a check", `unknown command "tests"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := checkGuide("```\n"+tc.line+"\n```\n", read(t, "docker/compose.yaml"))
			wantProblem(t, problems, tc.want)
		})
	}
}
