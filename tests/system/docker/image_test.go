package docker

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-net/sluice"

// targets maps the stages that are images to the program that each one runs.
var targets = map[string]string{"agent": "sluice-agent", "dev": "sluice-dev", "ksr": "sluice-ksr", "neutron": "sluice-neutron", "ctl": "sluicectl"}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDockerfileNamesExistingThings(t *testing.T) {
	for _, p := range checkDockerfile(read(t, "docker/Dockerfile"), read(t, "Makefile"), read(t, "go.mod")) {
		t.Error(p)
	}
}

// checkDockerfile returns what is wrong with a Dockerfile.
func checkDockerfile(text, makefile, goMod string) (problems []string) {
	stages, err := parseDockerfile(text)
	if err != nil {
		return []string{err.Error()}
	}
	for i, s := range stages {
		problems = append(problems, checkBase(s, stages[:i], goMod)...)
		for _, in := range s.all("COPY") {
			problems = append(problems, checkCopy(in, stages[:i])...)
		}
		for _, in := range s.all("RUN") {
			if slices.Contains(in.args, "go") && slices.Contains(in.args, "build") {
				problems = append(problems, checkBuild(in.args, makefile)...)
			}
		}
	}
	for target, program := range targets {
		s, ok := findStage(stages, target)
		if !ok {
			problems = append(problems, "there is no stage "+target)
			continue
		}
		problems = append(problems, checkTarget(s, program)...)
	}
	slices.Sort(problems)
	return problems
}

var goDirective = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)

// checkBase checks the image of FROM; the image with Go has the version of go.mod.
func checkBase(s stage, before []stage, goMod string) []string {
	if _, ok := findStage(before, s.base); ok || s.base == "scratch" {
		return nil
	}
	problems := checkImage(s.base)
	if tag, ok := strings.CutPrefix(s.base, "golang:"); ok {
		if want := goDirective.FindStringSubmatch(goMod); want == nil || !strings.HasPrefix(tag, want[1]+"-") {
			problems = append(problems, fmt.Sprintf("image %s is not of the Go version of go.mod, %v", s.base, want))
		}
	}
	return problems
}

func checkCopy(in instruction, before []stage) (problems []string) {
	if from, ok := in.flags["from"]; ok {
		if _, ok := findStage(before, from); !ok {
			problems = append(problems, "COPY from the unknown stage "+from)
		}
		return problems
	}
	for _, source := range in.args[:max(0, len(in.args)-1)] {
		problems = append(problems, checkExists(root, source)...)
	}
	return problems
}

var (
	makeBuild = regexp.MustCompile(`(?m)^GOBUILD := (.*)$`)
	linkerVar = regexp.MustCompile(`-X (\S+)\.(\w+)=`)
)

// checkBuild checks that the image is built with the flags of the Makefile, from
// packages that exist, and that the linker sets a variable that exists.
func checkBuild(args []string, makefile string) (problems []string) {
	end := slices.Index(args, "-o")
	if end < 0 || end+2 >= len(args) {
		return []string{"go build has no -o DIR PACKAGE..."}
	}
	found := makeBuild.FindStringSubmatch(makefile)
	if found == nil {
		return []string{"the Makefile has no GOBUILD"}
	}
	want, err := split(strings.ReplaceAll(found[1], "$(VERSION)", "${VERSION}"))
	if err != nil {
		return []string{err.Error()}
	}
	if !slices.Equal(args[:end], want) {
		problems = append(problems, fmt.Sprintf("the build command is\n\t%q, that of the Makefile is\n\t%q", args[:end], want))
	}
	for _, pkg := range args[end+2:] {
		problems = append(problems, checkExists(root, path.Join(pkg, "main.go"))...)
	}
	if v := linkerVar.FindStringSubmatch(strings.Join(args, " ")); v == nil || !hasVar(v[1], v[2]) {
		problems = append(problems, fmt.Sprintf("the linker sets a variable that does not exist: %v", v))
	}
	return problems
}

// hasVar reports whether a package of this module declares a variable.
func hasVar(pkg, name string) bool {
	dir, ours := strings.CutPrefix(pkg, module+"/")
	files, _ := filepath.Glob(filepath.Join(root, dir, "*.go"))
	return ours && slices.ContainsFunc(files, func(file string) bool {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		return err == nil && slices.ContainsFunc(f.Decls, func(d ast.Decl) bool { return declares(d, name) })
	})
}

func declares(d ast.Decl, name string) bool {
	group, ok := d.(*ast.GenDecl)
	return ok && group.Tok == token.VAR && slices.ContainsFunc(group.Specs, func(s ast.Spec) bool {
		return slices.ContainsFunc(s.(*ast.ValueSpec).Names, func(n *ast.Ident) bool { return n.Name == name })
	})
}

// unprivileged matches numbers of a user and of a group that are not root.
var unprivileged = regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`)

// checkTarget checks a stage that is an image: one program on an empty file system,
// not as root, labelled, with settings that the program knows.
func checkTarget(s stage, program string) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, "stage "+s.name+": "+fmt.Sprintf(format, args...))
	}
	if s.base != "scratch" {
		complain("is made from %s, not from scratch", s.base)
	}
	if user := s.last("USER"); len(user) != 1 || !unprivileged.MatchString(user[0]) {
		complain("USER %v: want the numbers of a user and a group, not root", user)
	}
	binary := "/usr/bin/" + program
	if entry := s.last("ENTRYPOINT"); !slices.Equal(entry, []string{binary}) {
		complain("ENTRYPOINT %v: want %s", entry, binary)
	}
	if !slices.ContainsFunc(s.all("COPY"), func(in instruction) bool {
		return slices.Equal(in.args, []string{"/out/" + program, "/usr/bin/"})
	}) {
		complain("%s is not copied from the build", binary)
	}
	labels := s.pairs("LABEL")
	for _, key := range []string{"title", "description", "source", "version"} {
		if labels["org.opencontainers.image."+key] == "" {
			complain("has no label org.opencontainers.image.%s", key)
		}
	}
	commands := map[string][][]string{"sluice-agent": {{"run"}}, "sluice-dev": {{"dev"}}, "sluice-neutron": {nil}, "sluicectl": {nil}}[program]
	for name := range s.pairs("ENV") {
		for _, command := range commands {
			for _, p := range checkSetting(program, command, name) {
				complain("%s", p)
			}
		}
	}
	return problems
}
