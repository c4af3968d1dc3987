package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/sluice-net/sluice/tests/spec/conformance"
	"github.com/sluice-net/sluice/tests/spec/conformance/replay"
)

var (
	errAbsent   = errors.New("the recorded suites are not part of the module")
	errMismatch = errors.New("the replay has mismatches")
)

func main() {
	out := flag.String("o", "", "`file` that the page is written to; the terminal without it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, os.Stdout, os.Stderr); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(status(err))
	}
}

func status(err error) int {
	if errors.Is(err, errAbsent) {
		return 2
	}
	return 1
}

// run measures everything and writes the page.
func run(ctx context.Context, out string, page, progress io.Writer) error {
	suites, err := load(conformance.Find)
	if err != nil {
		return err
	}
	m := measurement{suites: suites, kinds: replay.Kinds(), options: replay.Options{Resync: 1}}
	if err := m.run(ctx, progress); err != nil {
		return err
	}
	text := m.page()
	if out == "" {
		_, err = io.WriteString(page, text)
	} else {
		err = replace(out, text)
	}
	if err == nil && m.mismatches() > 0 {
		err = fmt.Errorf("%w: %d", errMismatch, m.mismatches())
	}
	return err
}

// realCluster is how the rest of the page begins, which "make e2e-kubernetes" writes.
const realCluster = "## In a real Kubernetes\n"

// replace writes the page, and keeps the rest of an older one.
func replace(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, rest, there := strings.Cut(string(old), realCluster); there {
		text += "\n" + realCluster + rest
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// suite is a recorded suite and what it is called.
type suite struct {
	name string
	*conformance.Suite
}

var titles = map[string]string{
	conformance.Cyclonus:   "Cyclonus",
	conformance.Kubernetes: "Kubernetes e2e",
	conformance.Admin:      "network-policy-api",
}

// load reads the suites that are replayed.
func load(find func(name string) (string, bool)) ([]suite, error) {
	var out []suite
	for _, file := range conformance.Policies {
		path, ok := find(file)
		if !ok {
			return nil, fmt.Errorf("../shared/conformance/%s is absent: %w", file, errAbsent)
		}
		s, err := conformance.Load(path)
		if err != nil {
			return nil, err
		}
		out = append(out, suite{titles[file], s})
	}
	return out, nil
}
