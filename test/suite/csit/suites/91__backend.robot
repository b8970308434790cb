*** Settings ***
Documentation       Reboots of the bridge's backend, alone and together with the bridge. The bridge is in sync again in
...                 time. Needs BACKEND_KILL_COMMAND, BACKEND_START_COMMAND and BACKEND_EMPTY_COMMAND.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Write A Pod
Suite Teardown      Remove All Entries

Test Tags           backend


*** Variables ***
${PODS}                 ${DRAFT02.data}/${POD.container}
${INTERFACE}            ${NAMESPACE}:${POD_NAME}
${SECOND_INTERFACE}     ${NAMESPACE}:${SECOND_POD_NAME}


*** Test Cases ***
A Pod Created During An Outage Is Written Afterwards
    Kill The Backend
    ${body}=    Body    second-pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wait For Object    ${INTERFACES}    ${SECOND_INTERFACE}
    Run Command    ${BACKEND_START_COMMAND}
    Wait For Sync
    Backend Should Have    ${INTERFACE}
    Backend Should Have    ${SECOND_INTERFACE}

A Pod Deleted During An Outage Is Removed Afterwards
    [Documentation]    The bridge is restarted too, so it must find the objects in the backend.
    Kill The Backend
    Request    DELETE    ${PODS}/pods/${SECOND_POD_UID}    expected=200
    Kill The Controller
    Run Command    ${BACKEND_START_COMMAND}
    Start The Controller
    Wait For Sync
    Backend Should Not Have    ${SECOND_INTERFACE}
    Backend Should Have    ${INTERFACE}

An Empty Backend Is Filled Again
    ${before}=    Wait For Object    ${VPN_INTERFACES}    ${INTERFACE}
    Kill The Backend
    Run Command    ${BACKEND_EMPTY_COMMAND}
    Wait For Sync
    Backend Should Have    ${INTERFACE}
    ${after}=    Wait For Object    ${VPN_INTERFACES}    ${INTERFACE}
    Dictionaries Should Be Equal    ${after}    ${before}


*** Keywords ***
Write A Pod
    Skip If    $BACKEND_KILL_COMMAND == ''    there is no command that kills the backend
    Begin Without Entries
    ${body}=    Body    pod.json
    Request    POST    ${PODS}    ${body}    expected=204
    Wait For Sync
    Backend Should Have    ${INTERFACE}
