package xdp

import (
	"errors"
	"slices"

	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// Cleanup removes what the renderer pinned in a folder, and its filters at all interfaces of the
// network namespace. It ends all enforcement by these. First it calls others, which remove what else
// is pinned there. It removes only objects with Sluice's names, and nothing while a process owns the
// folder. It returns how many objects it removed. If the folder is not in a bpf file system it removes
// filters only, and returns an error too.
func Cleanup(pinPath string, others ...func() (int, error)) (removed int, err error) {
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
	for _, remove := range append(slices.Clone(others),
		interfaces.DetachAll,
		stack.Detach, // after the interfaces, which leave packets for the node to these programs
		func() (int, error) { return removePins(folder) },
	) {
		n, err := remove()
		removed, errs = removed+n, append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removePins removes the pinned maps, and the folder if it is empty then.
func removePins(folder *pins.Folder) (int, error) {
	if folder == nil {
		return 0, nil
	}
	return folder.Remove(slices.Concat(loader.MapNames, loader.SharedNames, []string{digestPin})...)
}
