package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// suites runs upstream suites on a cluster that is up, once and without retries.
type suites struct {
	*lab
	programs string // folder of the suites' binaries
	only     []string
	procs    int
	focus    string
	report   string // folder for what the suites write
	page     string // file with the table of results, empty for none
}

// suite is an upstream suite.
type suite struct {
	name, title string
	program     string // its binary, which knows its version
	what        string // the part of it that is run
	run         func(context.Context, *suites) ([]result, error)
}

// all returns the suites, in the order in which they are run.
func all() []suite {
	return []suite{
		{"e2e", "Kubernetes e2e, `Netpol`", "e2e.test", "all", runE2E},
		{"cnp", "NetworkPolicy API conformance, ClusterNetworkPolicy v1beta1", "netpolapi.test", "all features", admin("netpolapi").run},
		{"cnp-v1alpha2", "NetworkPolicy API conformance, ClusterNetworkPolicy v1alpha2", "netpolapi-v1alpha2.test", "all features", admin("netpolapi-v1alpha2").run},
		{"anp", "the same, AdminNetworkPolicy and BaselineAdminNetworkPolicy", "netpolapi-v1alpha1.test", "all features", admin("netpolapi-v1alpha1").run},
		{"cyclonus", "Cyclonus generator", "cyclonus", cyclonusPart, runCyclonus},
	}
}

func suitesCommand(l *lab) *cobra.Command {
	s := &suites{lab: l}
	var names []string
	for _, t := range all() {
		names = append(names, t.name)
	}
	c := &cobra.Command{
		Use: "suites", Short: "Run upstream suites on the cluster, and write a table of results", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context()) },
	}
	f := c.Flags()
	f.StringVar(&s.programs, "suites-bin", "bin/tools/suites", "folder with the binaries of the suites")
	f.StringSliceVar(&s.only, "only", names, "suites to run")
	f.IntVar(&s.procs, "procs", 4, "tests of the Kubernetes suite that run at the same time")
	f.StringVar(&s.focus, "focus", "Netpol", "regular expression for the tests of the Kubernetes suite")
	f.StringVar(&s.report, "report", filepath.Join(os.TempDir(), "sluice-suites"), "folder for logs and reports")
	f.StringVar(&s.page, "page", "", "file whose part for this kind of cluster is replaced by the results")
	return c
}

// run runs the suites that were asked for. A test that fails is an error, when all have ended.
func (s *suites) run(ctx context.Context) (err error) {
	if err := s.prepare(); err != nil {
		return err
	}
	p := page{lab: s.lab}
	for _, t := range all() {
		if !slices.Contains(s.only, t.name) {
			continue
		}
		begin := time.Now()
		results, err := t.run(ctx, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			results = append(results, result{"the suite", failed, err.Error()})
		}
		o := outcome{suite: t, version: version(filepath.Join(s.programs, t.program)), results: results, took: time.Since(begin)}
		fmt.Printf("%6.0fs  %s: %d passed, %d failed, %d not run\n", o.took.Seconds(), t.title, o.count(passed), o.count(failed), o.count(skipped))
		p.outcomes = append(p.outcomes, o)
	}
	if s.page != "" {
		if _, p.earlier, _, err = parts(s.page, p.key()); err != nil {
			return err
		}
	}
	text, err := p.text()
	if err != nil {
		return err
	}
	fmt.Println(text)
	if s.page != "" {
		if err := replacePart(s.page, p.key(), text); err != nil {
			return err
		}
	}
	return p.verdict()
}

// prepare makes the cluster fit for the suites.
func (s *suites) prepare() (err error) {
	for _, p := range []*string{&s.programs, &s.report} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(s.report, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.programs, "all")); err != nil {
		return fmt.Errorf("the suites are not in %s: make e2e-kubernetes builds them", s.programs)
	}
	for n := range s.Nodes {
		if err := s.loadImages(nodeName(n+1), s.image()); err != nil {
			return err
		}
	}
	return nil
}

// image is agnhost under the names that the suites know, which also ask for a shell.
func (s *suites) image() image {
	shell := filepath.Join(s.programs, "gosh")
	files := map[string]string{"bin/bash": shell, "bin/sh": shell}
	maps.Copy(files, s.agnhost())
	return image{
		names: []string{"registry.k8s.io/e2e-test-images/agnhost:2.45", "registry.k8s.io/e2e-test-images/agnhost:2.43"},
		files: files, path: "agnhost", args: []string{"pause"},
	}
}

// start runs a program of a suite where the API server is, with its output in a file. That tests
// fail is no error: what is read from its report says so.
func (s *suites) start(ctx context.Context, log string, args ...string) (string, error) {
	args[0] = filepath.Join(s.programs, args[0])
	line, err := s.inside(control, args...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.report, log)
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.path("admin.conf"), "PATH="+s.Kube+":"+os.Getenv("PATH"))
	c.Dir, c.Stdout, c.Stderr = s.report, out, out
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 && ctx.Err() == nil {
		err = nil
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return "", fmt.Errorf("%s: %w; its output is in %s", strings.Join(args, " "), err, path)
	}
	return path, nil
}
