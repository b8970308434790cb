package discovery

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// messageModules are modules of the protocol without data nodes: errors and the root
// resource, the YANG Patch, the attribute of report-all-tagged.
// Others use only typedefs, groupings and extensions of a module that is not Implemented.
var messageModules = []yang.Module{
	{Name: "ietf-netconf-with-defaults", Revision: "2011-06-01", Namespace: "urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults", Implemented: true},
	{Name: "ietf-restconf", Revision: "2017-01-26", Namespace: wire.Space},
	{Name: wire.PatchModule, Revision: "2017-02-22", Namespace: wire.PatchSpace, Implemented: true},
}

// Modules are the modules of the schema, of operations and of the protocol, by name. The
// sources of the protocol's modules are the files modules/NAME.yang.
func Modules(schema *yang.Schema, operations []Operation, sources fs.FS) ([]*yang.Module, error) {
	all := slices.Clone(schema.Modules)
	for _, o := range operations {
		all = append(all, o.Modules...)
	}
	for _, m := range messageModules {
		text, err := fs.ReadFile(sources, "modules/"+m.Name+".yang")
		if err != nil {
			return nil, fmt.Errorf("read the module %s: %w", m.Name, err)
		}
		m.Text = string(text)
		all = append(all, &m)
	}
	slices.SortFunc(all, func(a, b *yang.Module) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
