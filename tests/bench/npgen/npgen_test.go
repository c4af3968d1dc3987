package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// generate runs the command and returns the directory that it wrote.
func generate(tb testing.TB, args ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	var stdout bytes.Buffer
	if err := run(append(args, "-out", dir), &stdout); err != nil {
		tb.Fatal(err)
	}
	if got := read(tb, dir, "stats.json"); stdout.String() != got {
		tb.Errorf("printed %s, but stats.json is %s", &stdout, got)
	}
	return dir
}

func read(tb testing.TB, dir, file string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func readStats(tb testing.TB, dir string) stats {
	tb.Helper()
	var s stats
	if err := json.Unmarshal([]byte(read(tb, dir, "stats.json")), &s); err != nil {
		tb.Fatal(err)
	}
	return s
}

// sums returns the start of the SHA-256 of each file.
func sums(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for _, file := range []string{"init.jsonl", "events.jsonl", "stats.json"} {
		out[file] = fmt.Sprintf("%.8x", sha256.Sum256([]byte(read(tb, dir, file))))[:8]
	}
	return out
}

// Published figures were measured on these bytes: a sum that changes makes them
// incomparable.
func TestWorkloadBytesDependOnFlagsOnly(t *testing.T) {
	const noEvents = "e3b0c442"
	for _, tc := range []struct {
		args                string
		init, events, stats string
	}{
		{"-w init -size S", "2e5b8bd5", noEvents, "6e027a10"},
		{"-w init -size S -dual -seed 7", "ccb2e66a", noEvents, "4106e93c"},
		{"-w churn -n 500", "2e5b8bd5", "d264ddf9", "17154919"},
		{"-w nslabel -n 50", "ec2334dc", "f2d6aee7", "28118a41"},
		{"-w policy -n 300", "2e5b8bd5", "2502c30c", "f7ca2925"},
		{"-w ipblock -n 10", "f586e571", noEvents, "09ab40b8"},
		{"-w anp", "5212a0ab", noEvents, "ac7d560d"},
		{"-w anp -api cnp", "b0ebe1d8", noEvents, "ac7d560d"},
		{"-w dense -n 300", "0e31a95b", noEvents, "7da8553e"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			want := map[string]string{"init.jsonl": tc.init, "events.jsonl": tc.events, "stats.json": tc.stats}
			for range 2 {
				if diff := cmp.Diff(want, sums(t, generate(t, strings.Fields(tc.args)...))); diff != "" {
					t.Errorf("other bytes (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestWorkloadOfMiddleSizeHasKnownBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 10 000 pods")
	}
	if got, want := sums(t, generate(t, "-size", "M", "-nostats"))["init.jsonl"], "2bb43c0b"; got != want {
		t.Errorf("size M has the sum %s, want %s", got, want)
	}
}

func TestWorkloadDependsOnSeed(t *testing.T) {
	if one, two := generate(t), generate(t, "-seed", "2"); sums(t, one)["init.jsonl"] == sums(t, two)["init.jsonl"] {
		t.Error("seeds 1 and 2 give the same objects")
	}
}

func TestOptionsErrorsNameFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-out DIR -w nothing":             `-w "nothing" is not one of anp, churn, dense, init, ipblock, nslabel, policy`,
		"-out DIR -size XXXL":             `-size "XXXL" is not one of L, M, S, XL, XXL`,
		"-out DIR -w anp -api v1":         `-api "v1" is not one of anp, cnp`,
		"-w init":                         "-out is required",
		"-out DIR -w churn -n -1":         "-n -1 is negative",
		"-out DIR -n 5":                   "-n 5 counts nothing in the workload init",
		"-out DIR -n five":                `invalid value "five" for flag -n`,
		"-out DIR -seed -1":               `invalid value "-1" for flag -seed`,
		"-out DIR -sise L":                "flag provided but not defined: -sise",
		"-out DIR init":                   `unexpected argument "init"`,
		"-out DIR -w dense -n 10211":      "a node would have had 1022 pods, and it has addresses for 1021",
		"-out " + file:                    "making the output directory",
		"-out " + file + "/below -size S": "making the output directory",
	} {
		t.Run(args, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			var stdout bytes.Buffer
			err := run(strings.Fields(strings.ReplaceAll(args, "DIR", dir)), &stdout)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, want)
			}
			if _, statErr := os.Stat(dir); !errors.Is(statErr, os.ErrNotExist) || stdout.Len() > 0 {
				t.Errorf("something was written: %v, %q", statErr, &stdout)
			}
		})
	}
}

func TestWriteErrorsAreReturned(t *testing.T) {
	for _, file := range []string{"init.jsonl", "events.jsonl", "stats.json"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"-out", dir, "-nostats"}, io.Discard); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("error %v, want one that names %s", err, file)
		}
	}
	full := errors.New("the disk is full")
	err := writeLines(filepath.Join(t.TempDir(), "x"), func(*json.Encoder) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("error %v, want that of the encoder", err)
	}
}

func TestOptionsHelpNamesFlagsAndWorkloads(t *testing.T) {
	var stdout bytes.Buffer
	if err := run([]string{"-h"}, &stdout); err != nil {
		t.Fatal(err)
	}
	for name := range workloads {
		if !strings.Contains(stdout.String(), "\n  "+name+" ") {
			t.Errorf("the help does not say what %s is", name)
		}
	}
	for _, want := range []string{"-w workload", "-size size", "-seed number", "-out directory", "-n many", "-api API", "-dual", "-nostats", "Examples:"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the help lacks %q:\n%s", want, &stdout)
		}
	}
}
