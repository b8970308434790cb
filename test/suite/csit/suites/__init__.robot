*** Settings ***
Documentation       RESTCONF as OpenDaylight's clients use it, in the style of OpenDaylight's CSIT. Cases with
...                 the tag odl also pass on a real OpenDaylight (Oxygen).
Resource            ../resources/controller.resource

Suite Setup         Open Sessions And Begin
Suite Teardown      Remove All Entries And Close


*** Keywords ***
Open Sessions And Begin
    Open Sessions
    Begin Without Entries

Remove All Entries And Close
    Remove All Entries
    Delete All Sessions
