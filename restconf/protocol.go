package restconf

import (
	"embed"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/yang"
)

// sources are the modules whose definitions are in messages alone, each in the file of
// its name.
//
//go:embed modules/*.yang
var sources embed.FS

// messageModules are modules of the protocol without data nodes: errors and the root
// resource, the YANG Patch, the attribute of report-all-tagged, OpenDaylight's operation.
// What others use of a module is typedefs, groupings and extensions where it is not
// Implemented.
var messageModules = []yang.Module{
	{Name: "ietf-netconf-with-defaults", Revision: "2011-06-01", Namespace: "urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults", Implemented: true},
	{Name: "ietf-restconf", Revision: "2017-01-26", Namespace: restconfSpace},
	{Name: patchModule, Revision: "2017-02-22", Namespace: patchSpace, Implemented: true},
	{Name: salRemote, Revision: "2014-01-14", Namespace: salRemoteSpace, Implemented: true},
	{Name: salRemote + "-augment", Revision: "2014-07-08", Namespace: "urn:sal:restconf:event:subscription", Implemented: true},
}

// allModules are the modules of the schema and of the protocol, by name.
func allModules(schema *yang.Schema) []*yang.Module {
	all := slices.Clone(schema.Modules)
	for _, m := range messageModules {
		text, err := sources.ReadFile("modules/" + m.Name + ".yang")
		if err != nil {
			panic("a module is not in the program: " + err.Error())
		}
		m.Text = string(text)
		all = append(all, &m)
	}
	slices.SortFunc(all, func(a, b *yang.Module) int { return strings.Compare(a.Name, b.Name) })
	return all
}
