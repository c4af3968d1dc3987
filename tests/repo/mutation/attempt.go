package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"
)

// buildError is the error of a mutated package, or of tests that use it, that does not
// compile.
type buildError struct{ error }

// attempt is one fault on its way through the suites.
type attempt struct {
	*runner
	fault    Fault
	overlay  string
	dir      string
	binaries map[string]string // by folder
}

// suites runs all suites with -short, then in full, until one fails. A suite that does
// not end is noted, and the next one is asked.
func (a attempt) suites(ctx context.Context) ([]Catch, error) {
	var caught []Catch
	for _, m := range []mode{short, full} {
		for _, c := range a.runner.suites {
			if !a.concerns(c) || has(caught, c) {
				continue
			}
			limit, err := a.limit(c, m)
			if err != nil {
				return caught, err
			}
			out, err := a.ask(ctx, c, m, limit)
			if err != nil {
				return caught, err
			}
			if !out.failed {
				continue
			}
			catch := Catch{Suite: c.name(), Short: m == short, Test: out.test, Seconds: out.took.Seconds(), TimedOut: out.timeout}
			if out.timeout {
				catch.Output = out.output
			}
			caught = append(caught, catch)
			if !out.timeout && !a.Every {
				return caught, nil
			}
		}
	}
	return caught, nil
}

func has(caught []Catch, c *contestant) bool {
	for _, x := range caught {
		if x.Suite == c.name() {
			return true
		}
	}
	return false
}

// concerns reports whether a suite can notice the fault at all.
func (a attempt) concerns(c *contestant) bool {
	return c.Kernel == a.fault.ofPackets() && c.contents[a.packageOf(a.fault)] && (c.Only == "" || c.Only == a.fault.Area || a.fault.isOf(c.Only))
}

// ask builds a suite with the fault, unless that is done, and runs it.
func (a attempt) ask(ctx context.Context, c *contestant, m mode, limit time.Duration) (outcome, error) {
	binary, ok := a.binaries[c.Folder]
	if !ok {
		var err error
		if binary, err = a.build(ctx, c.Folder, a.overlay, a.dir); err != nil {
			if ctx.Err() != nil {
				return outcome{}, ctx.Err()
			}
			return outcome{}, &buildError{err}
		}
		a.binaries[c.Folder] = binary
	}
	out, err := a.invoke(c, binary, m, limit).run(ctx)
	if err == nil && out.failed && strings.Contains(out.output, refused) {
		return out, &buildError{errors.New("the kernel refuses the program")}
	}
	return out, err
}

// refused is what is said of a program that the kernel's verifier does not take.
const refused = ": load program: "

// unit runs the tests of the mutated package in full and returns the one that fails.
func (a attempt) unit(ctx context.Context) (string, error) {
	c := &contestant{Suite: Suite{Folder: a.fault.folder()}}
	var err error
	if c.contents, err = a.contents(ctx, c.Suite); err != nil {
		return "", err
	}
	out, err := a.ask(ctx, c, full, slack*a.Limit)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "no tests", nil
	case err != nil:
		return "", err
	case !out.failed:
		return string(Survived), nil
	}
	return out.test, nil
}
