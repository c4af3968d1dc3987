package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// maxSocket is how long the path of a socket can be.
const maxSocket = 107

// makeFolder makes the folder of a pod, which is for the pod alone, and returns the path of the
// socket in it. Only root may look for folders of others.
func (a *vppAttaching) makeFolder() (socket string, err error) {
	if !isName(a.pod.uid) {
		return "", types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS has the K8S_POD_UID %q: \"interface\": \"memif\" names the folder of the pod by it", a.pod.uid), "")
	}
	folder := filepath.Join(a.MemifFolder, a.pod.uid)
	if socket = filepath.Join(folder, a.args.IfName+".sock"); len(socket) > maxSocket {
		return "", types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("invalid memifFolder: the path of a socket in it has %d bytes, want %d at most", len(socket), maxSocket), socket)
	}
	if err = os.MkdirAll(a.MemifFolder, 0o700); err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return "", types.NewError(types.ErrIOFailure, "the folder of the pod's sockets cannot be made", err.Error())
	}
	// Whatever is there may be the pod's: it is not followed, nor written to.
	if _, err := os.Lstat(socket); err == nil {
		return "", isThere("socket "+socket, "")
	}
	return socket, nil
}

// describe writes what an application in the pod needs beside the socket: its addresses, those of
// Ethernet, and its routes, as the result of CNI.
func describe(socket string, r *current.Result) error {
	path := strings.TrimSuffix(socket, ".sock") + ".json"
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = writeNew(path, text)
	}
	if err != nil {
		return types.NewError(types.ErrIOFailure, "the interface of the pod cannot be described", err.Error())
	}
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Close() // the first error is the one that matters
		return err
	}
	return f.Close()
}

// removeFolders removes the folders of sockets that are gone, unless VPP has other sockets there.
// Only folders of pods are removed, whatever a path is.
func (c *config) removeFolders(there map[uint32]string, gone ...string) error {
	for _, path := range gone {
		folder := filepath.Dir(path)
		used := slices.ContainsFunc(slices.Collect(maps.Values(there)), func(s string) bool { return filepath.Dir(s) == folder })
		if used || filepath.Dir(folder) != filepath.Clean(c.MemifFolder) || !isName(filepath.Base(folder)) {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}

// isName reports whether a text can be the name of a pod's folder.
func isName(text string) bool {
	return text != "" && len(text) <= 64 && !strings.HasPrefix(text, ".") && !strings.ContainsAny(text, "/\x00")
}
