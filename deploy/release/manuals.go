package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/reflector"
	"github.com/sluice-net/sluice/internal/view"
)

// manuals returns the manual pages and the completion of shells for all programs, below usr/share.
func (r release) manuals() ([]file, error) {
	// Defaults in help texts are those of a node, not of who makes the release.
	if err := os.Setenv(view.SocketEnv, view.RootSocket); err != nil {
		return nil, err
	}
	var all []file
	for _, cmd := range []*cobra.Command{
		agent.NewCommand(io.Discard, io.Discard),
		reflector.NewCommand(io.Discard),
		agent.NewNeutronCommand(io.Discard),
		cli.NewCommand(strings.NewReader(""), io.Discard, io.Discard),
	} {
		cmd.DisableAutoGenTag = true
		cmd.InitDefaultHelpFlag()
		pages, err := r.pages(cmd)
		if err != nil {
			return nil, err
		}
		shells, err := completions(cmd)
		if err != nil {
			return nil, err
		}
		all = append(append(all, pages...), shells...)
	}
	return all, nil
}

// pages returns the manual pages of a program.
func (r release) pages(cmd *cobra.Command) ([]file, error) {
	dir, err := os.MkdirTemp("", "man")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	header := &doc.GenManHeader{Section: "8", Date: &r.time, Source: "Sluice " + r.version, Manual: "Sluice"}
	if cmd.Name() == "sluicectl" {
		header.Section = "1"
	}
	if err := doc.GenManTree(cmd, header, dir); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var pages []file
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // a level that exists
		if _, err := z.Write(text); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		pages = append(pages, file{fmt.Sprintf("usr/share/man/man%s/%s.gz", header.Section, filepath.Base(name)), 0o644, packed.Bytes()})
	}
	return pages, nil
}

// completions returns what shells read to complete the commands of a program.
func completions(cmd *cobra.Command) ([]file, error) {
	name := cmd.Name()
	var bash, zsh, fish bytes.Buffer
	if err := cmd.GenBashCompletionV2(&bash, true); err != nil {
		return nil, err
	}
	if err := cmd.GenZshCompletion(&zsh); err != nil {
		return nil, err
	}
	if err := cmd.GenFishCompletion(&fish, true); err != nil {
		return nil, err
	}
	return []file{
		{"usr/share/bash-completion/completions/" + name, 0o644, bash.Bytes()},
		{"usr/share/zsh/vendor-completions/_" + name, 0o644, zsh.Bytes()},
		{"usr/share/fish/vendor_completions.d/" + name + ".fish", 0o644, fish.Bytes()},
	}, nil
}

// of returns the files that are of one program: those whose name begins with its own.
func of(program string, files []file) (own []file) {
	for _, f := range files {
		name := strings.TrimPrefix(filepath.Base(f.path), "_")
		if rest, ok := strings.CutPrefix(name, program); ok && (rest == "" || rest[0] == '.' || rest[0] == '-') {
			own = append(own, f)
		}
	}
	return own
}
