package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// pkg is one package: programs, and for a daemon its unit and its settings.
type pkg struct {
	name, description string
	programs          []string
	settings          string // of /etc/sluice, in deploy/systemd
}

var packages = []pkg{
	{"sluice-agent", "Enforces Kubernetes network policy in VPP or in the kernel of a node", []string{"sluice-agent", "sluice-cni"}, "agent.yaml"},
	{"sluice-ksr", "Reflects the state of a Kubernetes cluster into etcd for the agents of Sluice", []string{"sluice-ksr"}, "ksr.yaml"},
	{"sluice-neutron", "Enforces Kubernetes network policy by security groups of OpenStack Neutron", []string{"sluice-neutron"}, "neutron.yaml"},
	{"sluice-dev", "Runs Sluice with etcd and dataplane embedded, for development", []string{"sluice-dev"}, ""},
	{"sluicectl", "Asks an agent of Sluice what it enforces and why, and tests network policies", []string{"sluicectl"}, ""},
}

// packages makes a package in every format.
func (r release) packages(p pkg, arch string, manuals []file, licences file) error {
	dir, err := os.MkdirTemp("", "package")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	contents, err := r.contents(p, arch, dir, manuals, licences)
	if err != nil {
		return err
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.pack(p, arch, format, nfpm.Overridables{Contents: contents}); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// contents returns what is in a package. Files that are made go to dir first.
func (r release) contents(p pkg, arch, dir string, manuals []file, licences file) (files.Contents, error) {
	made := []file{licences}
	for _, program := range p.programs {
		made = append(made, of(program, manuals)...)
	}
	var all files.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		all = append(all, r.content(source, destination, kind, mode))
	}
	for i, f := range made {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, f.body, 0o600); err != nil {
			return nil, err
		}
		to := "/" + f.path
		if f.path == licences.path {
			to = "/usr/share/doc/" + p.name + "/" + f.path
		}
		add(name, to, files.TypeFile, f.mode)
	}
	for _, program := range p.programs {
		add(r.binary(program, arch), "/usr/bin/"+program, files.TypeFile, 0o755)
	}
	add(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/"+p.name+"/copyright", files.TypeFile, 0o644)
	add(filepath.Join(r.root, "NOTICE"), "/usr/share/doc/"+p.name+"/NOTICE", files.TypeFile, 0o644)
	if p.settings != "" {
		systemd := filepath.Join(r.root, "deploy", "systemd")
		add(filepath.Join(systemd, p.name+".service"), "/usr/lib/systemd/system/"+p.name+".service", files.TypeFile, 0o644)
		add(filepath.Join(systemd, p.settings), "/etc/sluice/"+p.settings, files.TypeConfigNoReplace, 0o640)
	}
	return all, nil
}

// content is one file of a package.
func (r release) content(source, destination, kind string, mode os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}}
}

// pack writes a package in one format.
func (r release) pack(p pkg, arch, format string, with nfpm.Overridables) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	with.RPM.BuildHost = "localhost"
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: p.name, Arch: arch, Platform: "linux", Version: r.number(), VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The Sluice Authors",
		Description: p.description, Homepage: "https://github.com/sluice-net/sluice", License: "Apache-2.0",
		MTime: r.time, Overridables: with,
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, packager.ConventionalFileName(info)), out.Bytes(), 0o600)
}
