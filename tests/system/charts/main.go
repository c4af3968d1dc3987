package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const deploy = "../../../deploy/"

// overlays are those of Kustomize, and the values with which the chart is the same objects.
var overlays = map[string]values{
	"ha-kernel":  {},
	"ha-vpp":     {"dataplane": "vpp"},
	"ha-neutron": {"dataplane": "neutron"},
	// "sluicectl store certificates" makes what the chart could make.
	"quickstart": {"etcd": values{"embedded": true, "generateCertificates": false}},
}

// values are those of a chart.
type values = map[string]any

// object is one of Kubernetes, as anything.
type object = map[string]any

// render returns the objects of the chart, by kind and name.
func render(v values) (map[string]object, error) {
	c, err := loader.LoadDir(deploy + "helm/sluice")
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "sluice", Namespace: "kube-system", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			text.WriteString("\n---\n" + files[name])
		}
	}
	return parse(text.Bytes())
}

// build returns the objects of an overlay.
func build(name string) (map[string]object, error) {
	found, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deploy, "kustomize", name))
	if err != nil {
		return nil, err
	}
	text, err := found.AsYaml()
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// parse reads objects.
func parse(text []byte) (map[string]object, error) {
	all := map[string]object{}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var o object
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
		if o == nil {
			continue
		}
		name := fmt.Sprint(o["kind"], "/", o["metadata"].(object)["name"])
		if all[name] != nil {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		all[name] = o
	}
	return all, nil
}

// main writes every overlay, and the chart with the values that go with it and with certificates of
// its own, to a folder: one file each.
func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: charts FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	for name, v := range overlays {
		objects, err := build(name)
		if err := writeObjects(objects, err, filepath.Join(folder, "kustomize-"+name+".yaml")); err != nil {
			return err
		}
		objects, err = render(v)
		if err := writeObjects(objects, err, filepath.Join(folder, "helm-"+name+".yaml")); err != nil {
			return err
		}
	}
	objects, err := render(values{"etcd": values{"embedded": true}})
	return writeObjects(objects, err, filepath.Join(folder, "helm-certificates.yaml"))
}

// writeObjects writes objects, unless there was an error, in the order of their names.
func writeObjects(objects map[string]object, err error, file string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		doc, err := yaml.Marshal(objects[name])
		if err != nil {
			return err
		}
		text.WriteString("---\n" + string(doc))
	}
	return os.WriteFile(file, text.Bytes(), 0o600)
}
