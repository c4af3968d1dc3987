package keeper

import (
	"os"
	"path/filepath"
	"testing"
)

// TestResultsOfLoopbackNameNoPod has the cache as containerd leaves it while a pod is created: the
// loopback is set up first. Its address was taken for the pod's, so that the pod had no usable one.
func TestResultsOfLoopbackNameNoPod(t *testing.T) {
	dir := t.TempDir()
	write := func(name, ifName, address string) {
		t.Helper()
		text := `{"kind": "cniCacheV1", "containerId": "c1", "ifName": "` + ifName + `", "cniArgs": [["K8S_POD_NAMESPACE", "lab"], ["K8S_POD_NAME", "web"]],
			"result": {"cniVersion": "0.4.0", "interfaces": [{"name": "` + ifName + `", "sandbox": "/run/netns/c1"}], "ips": [{"address": "` + address + `"}]}}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cni-loopback-c1-lo", "lo", "127.0.0.1/8")
	if all, err := readResults(dir); err != nil || len(all) > 0 {
		t.Errorf("the loopback alone is %v: %v", all, err)
	}
	write("lab-c1-eth0", "eth0", "10.244.1.2/32")
	all, err := readResults(dir)
	if err != nil || len(all) != 1 || all[0].addresses()[0].String() != "10.244.1.2" {
		t.Errorf("with the pod's interface it is %v: %v", all, err)
	}
}
