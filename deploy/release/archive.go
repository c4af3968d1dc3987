package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// archive makes sluice_VERSION_linux_ARCH.tar.gz: binaries, manuals, units and licences.
func (r release) archive(arch string, manuals []file, licences file) (err error) {
	files := append(slices.Clone(manuals), licences)
	for _, program := range programs {
		b, err := os.ReadFile(r.binary(program, arch))
		if err != nil {
			return err
		}
		files = append(files, file{"usr/bin/" + program, 0o755, b})
	}
	for name, to := range map[string]string{
		"LICENSE": "LICENSE", "NOTICE": "NOTICE", "README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
		"deploy/systemd/sluice-agent.service":   "systemd/sluice-agent.service",
		"deploy/systemd/sluice-ksr.service":     "systemd/sluice-ksr.service",
		"deploy/systemd/sluice-neutron.service": "systemd/sluice-neutron.service",
		"deploy/systemd/agent.yaml":             "etc/sluice/agent.yaml",
		"deploy/systemd/ksr.yaml":               "etc/sluice/ksr.yaml",
		"deploy/systemd/neutron.yaml":           "etc/sluice/neutron.yaml",
	} {
		f, err := r.read(name, to)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	top := fmt.Sprintf("sluice_%s_linux_%s", r.number(), arch)
	for i := range files {
		files[i].path = path.Join(top, files[i].path)
	}
	out, err := os.Create(filepath.Join(r.out, top+".tar.gz"))
	if err != nil {
		return err
	}
	z, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // a level that exists
	err = writeTar(tar.NewWriter(z), files, r)
	return errors.Join(err, z.Close(), out.Close())
}

// chart makes sluice-VERSION.tgz, the Helm chart with the version of the release.
func (r release) chart() error {
	top := filepath.Join(r.root, "deploy", "helm", "sluice")
	var files []file
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := r.read(strings.TrimPrefix(name, r.root), path.Join("sluice", strings.TrimPrefix(filepath.ToSlash(name), filepath.ToSlash(top))))
		if e.Name() == "Chart.yaml" {
			f.body = []byte(strings.NewReplacer("version: 0.0.0\n", "version: "+r.semantic()+"\n", "appVersion: dev\n", "appVersion: "+strconv.Quote(r.version)+"\n").Replace(string(f.body)))
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, "sluice-"+r.semantic()+".tgz"))
	if err != nil {
		return err
	}
	z, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // a level that exists
	return errors.Join(writeTar(tar.NewWriter(z), files, r), z.Close(), out.Close())
}

// writeTar writes files sorted by path, as root's, with the time of the release.
func writeTar(w *tar.Writer, files []file, r release) error {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: int64(f.mode.Perm()), Size: int64(len(f.body)), ModTime: r.time, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.body); err != nil {
			return err
		}
	}
	return w.Close()
}
