package xdp

import (
	"errors"
	"slices"

	"github.com/sluice-net/sluice/endpoints/gate"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// Cleanup removes everything that is pinned in a folder, gates too, and the filters of ours of all
// interfaces of the network namespace: what was enforced by them is not any more. It touches
// nothing that has not a name of ours, and nothing at all while a process owns the folder. It
// returns how many it removed; where the folder cannot have pins, these are filters.
func Cleanup(pinPath string) (removed int, err error) {
	var folder *pins.Folder
	none := pins.Check(pinPath)
	if none == nil {
		if folder, err = pins.Take(pinPath); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
	}
	interfaces, stack := attach.NewInterfaces(folder, ModeNone), attach.NewStack(folder)
	if err := errors.Join(interfaces.Adopt(nil), stack.Adopt()); err != nil {
		return 0, errors.Join(none, err)
	}
	errs := []error{none}
	for _, remove := range []func() (int, error){
		gate.New(pinPath).Cleanup,
		interfaces.DetachAll,
		stack.Detach, // behind the interfaces: what is for the node is left to it
		func() (int, error) { return removePins(folder) },
	} {
		n, err := remove()
		removed, errs = removed+n, append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removePins removes the pinned maps, and their folder if nothing else is in it.
func removePins(folder *pins.Folder) (int, error) {
	if folder == nil {
		return 0, nil
	}
	return folder.Remove(slices.Concat(loader.MapNames, loader.SharedNames, []string{digestPin})...)
}
