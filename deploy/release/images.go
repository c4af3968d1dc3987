package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is who runs in the images; Kubernetes can check that a number is not root.
const user = 65532

// agentSocket is that of the agent.
const agentSocket = "/run/sluice/agent.sock"

// image is what the Dockerfile calls a target.
type image struct {
	name, description string
	programs          []string // the first is what is run
	authorities       bool     // has the public certificate authorities
	socket            string   // where the debug socket is; empty: the image has nothing that asks
}

var images = []image{
	{"sluice-agent", "Enforces Kubernetes network policy in a userspace vswitch", []string{"sluice-agent", "sluice-cni", "sluicectl"}, true, agentSocket},
	{"sluice-dev", "Runs Sluice with etcd and dataplane embedded, for development", []string{"sluice-dev", "sluicectl"}, false, agentSocket},
	{"sluice-ksr", "Reflects the state of a Kubernetes cluster into etcd for the agents", []string{"sluice-ksr"}, true, ""},
	{"sluice-neutron", "Enforces Kubernetes network policy by security groups of OpenStack Neutron", []string{"sluice-neutron", "sluicectl"}, true, "/run/sluice/neutron.sock"},
	{"sluicectl", "Asks a Sluice agent what it enforces and why, and tests network policies", []string{"sluicectl"}, false, agentSocket},
}

// images makes NAME_VERSION_oci.tar of every image, an OCI layout with all architectures.
func (r release) images() error {
	for _, i := range images {
		if err := r.image(i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return nil
}

func (r release) image(i image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range r.arches {
		one, err := r.oneImage(i, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	top, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{
		"org.opencontainers.image.ref.name": i.name + ":" + r.version,
		// containerd calls it this. A kubelet looks for it where a manifest says NAME:VERSION.
		"io.containerd.image.name": "docker.io/library/" + i.name + ":" + r.version,
	}
	if err := top.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	return r.pour(dir, fmt.Sprintf("%s_%s_oci.tar", i.name, r.number()))
}

// pour writes a directory as a tar file.
func (r release) pour(dir, name string) error {
	var files []file
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files = append(files, file{strings.TrimPrefix(path, dir+"/"), 0o644, b})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(tar.NewWriter(out), files, r), out.Close())
}

// oneImage is an image for one architecture.
func (r release) oneImage(i image, arch string) (v1.Image, error) {
	content, err := r.layer(i, arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	one, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := one.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.time}
	config.Config.User = fmt.Sprintf("%d:%d", user, user)
	config.Config.Entrypoint = []string{"/usr/bin/" + i.programs[0]}
	config.Config.Env = []string{"PATH=/usr/bin"}
	if i.socket != "" {
		config.Config.Env = append(config.Config.Env, "SLUICE_API_SOCKET="+i.socket)
	}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       i.name,
		"org.opencontainers.image.description": i.description,
		"org.opencontainers.image.source":      "https://github.com/sluice-net/sluice",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.version,
	}
	return mutate.ConfigFile(one, config)
}

// layer returns the file system of an image as a tar file: binaries, and the only places that they
// write to.
func (r release) layer(i image, arch string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folder := func(path string, mode int64, owner int) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode, Uid: owner, Gid: owner, ModTime: r.time, Format: tar.FormatPAX})
	}
	put := func(path string, mode int64, body []byte) error {
		err := w.WriteHeader(&tar.Header{Name: path, Mode: mode, Size: int64(len(body)), ModTime: r.time, Format: tar.FormatPAX})
		if err == nil {
			_, err = w.Write(body)
		}
		return err
	}
	err := errors.Join(folder("tmp", 0o1777, user), folder("run", 0o755, 0), folder("run/sluice", 0o700, user),
		folder("var", 0o755, 0), folder("var/lib", 0o755, 0), folder("var/lib/sluice", 0o700, user),
		folder("var/lib/sluice/agent", 0o700, user), folder("var/lib/sluice/etcd", 0o700, user),
		folder("usr", 0o755, 0), folder("usr/bin", 0o755, 0))
	if i.authorities {
		err = errors.Join(err, folder("etc", 0o755, 0), folder("etc/ssl", 0o755, 0), folder("etc/ssl/certs", 0o755, 0),
			put("etc/ssl/certs/ca-certificates.crt", 0o644, authorities()))
	}
	for _, program := range i.programs {
		b, readErr := os.ReadFile(r.binary(program, arch))
		err = errors.Join(err, readErr, put("usr/bin/"+program, 0o755, b))
	}
	return out.Bytes(), errors.Join(err, w.Close())
}

// authorities are the public certificate authorities, of the version that go.mod names: what stands
// on the machine that makes the release does not matter. Those that may speak for some names only
// are left out, for a file of PEM cannot say so.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return out.Bytes()
}
