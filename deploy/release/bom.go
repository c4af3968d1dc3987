package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// bom writes the list of the modules that are in a program, as CycloneDX has it.
func (r release) bom(program, arch string) error {
	info, err := buildinfo.ReadFile(r.binary(program, arch))
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: program, Type: cyclonedx.ComponentTypeApplication, Name: program, Version: r.version,
			Licenses:    &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			Description: "for linux/" + arch,
		},
	}
	components := []cyclonedx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, dep := range deps(info) {
		components = append(components, library(dep.Path, dep.Version, dep.Sum))
	}
	bom.Components = &components
	name := fmt.Sprintf("%s_%s_linux_%s.cdx.json", program, r.number(), arch)
	out, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

// library is a module; sum is what go.sum says of it.
func library(path, version, sum string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	c := cyclonedx.Component{BOMRef: purl, PackageURL: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}

// deps returns the modules that are in a binary, replaced ones as what replaces them.
func deps(info *debug.BuildInfo) (all []*debug.Module) {
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		all = append(all, dep)
	}
	return all
}

// licences returns one file with the licences of all modules that are in the programs.
func (r release) licences(arch string) (file, error) {
	modules := map[string]struct{}{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(r.binary(program, arch))
		if err != nil {
			return file{}, err
		}
		for _, dep := range deps(info) {
			modules[dep.Path+"@"+dep.Version] = struct{}{}
		}
	}
	var text bytes.Buffer
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		texts, err := r.licencesOf(module)
		if err != nil {
			return file{}, fmt.Errorf("%s: %w", module, err)
		}
		_, _ = fmt.Fprintf(&text, "%s\n%s\n\n", module, strings.Repeat("=", len(module)))
		for _, t := range texts {
			text.Write(t)
			text.WriteString("\n")
		}
	}
	return file{"LICENSES", 0o644, text.Bytes()}, nil
}

// licencesOf returns the licences and notices at the top of a module.
func (r release) licencesOf(module string) (texts [][]byte, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(downloaded.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "NOTICE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(downloaded.Dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return nil, fmt.Errorf("there is no licence in %s", downloaded.Dir)
	}
	return texts, nil
}
